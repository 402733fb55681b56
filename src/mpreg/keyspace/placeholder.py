"""The typed holes of a key pattern: which values each kind takes, and how they read inside a key.

Keys are bytes; here they are text with `surrogateescape`, so that one regular expression covers both.
"""

from __future__ import annotations

import datetime
import re
from typing import Literal

import msgspec

from mpreg.errors import KeyspaceError

Kind = Literal["str", "word", "int", "date", "bytes", "path", "choice"]
KINDS: tuple[Kind, ...] = ("str", "word", "int", "date", "bytes", "path")
Value = str | int | bytes | datetime.date

INT_MAX = 2**63 - 1  # what the store's own integers hold
INT_MIN = -(2**63)
FIRST_YEAR = 1000  # four digits without padding, as every tool prints them
WORD_BYTES_MAX = 512

WHITE_SPACE = "\x85\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
CONTROL = "".join(map(chr, [*range(0x21), *range(0x7F, 0xA1)]))
UNPRINTED = frozenset(WHITE_SPACE + CONTROL)
"""All white space and control characters of Unicode."""

# What surrogateescape makes of bytes that are not UTF-8.
STRAY_BYTES = frozenset(chr(code) for code in range(0xDC80, 0xDD00))


class Placeholder(msgspec.Struct, frozen=True):
    """`refused` are the characters that a value may not hold, because the key could then be read in two ways."""

    name: str
    kind: Kind
    choices: tuple[str, ...] = ()
    refused: frozenset[str] = frozenset()

    @property
    def spelled(self) -> str:
        return "|".join(self.choices) if self.kind == "choice" else self.kind


def regex(placeholder: Placeholder) -> str:
    """The expression that a value in a key fits."""
    match placeholder.kind:
        case "int":
            return r"(?:0|-?[1-9][0-9]{0,18})"
        case "date":
            return r"[1-9][0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
        case "choice":
            return "(?:" + "|".join(re.escape(choice) for choice in sorted(placeholder.choices, key=len)[::-1]) + ")"
        case "path":
            return "[^\udc80-\udcff]+"
        case "bytes":
            return f"[^{_class(placeholder.refused)}]+" if placeholder.refused else r"[\s\S]+"
        case "str" | "word":
            return f"[^{_class(placeholder.refused)}\udc80-\udcff]+"


def _class(characters: frozenset[str]) -> str:
    return "".join(re.escape(character) for character in sorted(characters))


def write(placeholder: Placeholder, value: object) -> str:
    """The text of `value` inside a key; a value that does not fit is refused by the placeholder's name."""
    match placeholder.kind:
        case "int":
            if type(value) is not int:
                raise _refuse(placeholder, value, "takes an int")
            if not INT_MIN < value <= INT_MAX:
                raise _refuse(placeholder, value, "takes an int of at most 63 bits")
            return str(value)
        case "date":
            if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
                raise _refuse(placeholder, value, "takes a datetime.date")
            if value.year < FIRST_YEAR:
                raise _refuse(placeholder, value, f"takes years from {FIRST_YEAR}")
            return value.isoformat()
        case "choice":
            if value not in placeholder.choices:
                raise _refuse(placeholder, value, f"takes one of {', '.join(placeholder.choices)}")
            return str(value)
        case "bytes":
            if not isinstance(value, bytes):
                raise _refuse(placeholder, value, "takes bytes")
            return _bounded(placeholder, value, value.decode("utf-8", "surrogateescape"))
        case "str" | "word" | "path":
            if not isinstance(value, str):
                raise _refuse(placeholder, value, "takes a str")
            if not _is_utf8(value):
                raise _refuse(placeholder, value, "takes text that UTF-8 can hold")
            return _bounded(placeholder, value, value)


def _bounded(placeholder: Placeholder, value: object, text: str) -> str:
    if not text:
        raise _refuse(placeholder, value, "may not be empty")
    if not placeholder.refused.isdisjoint(text):
        character = next(character for character in text if character in placeholder.refused)
        why = "which a word can't have" if character in UNPRINTED else "which separates the parts of the key"
        raise _refuse(placeholder, value, f"may not hold {character!r}, {why}")
    if placeholder.kind == "word" and len(text.encode()) > WORD_BYTES_MAX:
        raise _refuse(placeholder, value, f"takes at most {WORD_BYTES_MAX} bytes")
    return text


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read(placeholder: Placeholder, text: str) -> Value | None:
    """The value back from a key's text that fits `regex`; None when it is no value after all (a 30 February)."""
    match placeholder.kind:
        case "int":
            number = int(text)
            return number if INT_MIN < number <= INT_MAX else None
        case "date":
            try:
                return datetime.date.fromisoformat(text)
            except ValueError:
                return None
        case "bytes":
            return text.encode("utf-8", "surrogateescape")
        case "word":
            return text if len(text.encode()) <= WORD_BYTES_MAX else None
        case _:
            return text


def from_words(placeholder: Placeholder, text: str) -> Value | None:
    """The value that a person means by `text` on a command line, or None when this placeholder can't hold it."""
    if re.fullmatch(regex(placeholder), text) is None:
        return None
    return read(placeholder, text)


def _refuse(placeholder: Placeholder, value: object, why: str) -> KeyspaceError:
    return KeyspaceError(
        "KEYSPACE_INVALID_VALUE",
        f"{placeholder.name} {why}, not {value!r:.100}",
        field=placeholder.name,
        kind=placeholder.spelled,
    )
