"""A key's pattern: literal text and typed placeholders, `issue:status:{number:int}`.

The invariant: `parse(build(values)) == values` for every value that `build` accepts, so a key says what it is.
To keep it, a pattern that could be read in two ways is refused when it is written down.

    {name}            text without the separator           {name:int}       a decimal number
    {name:word}       text without the separator, white    {name:date}      2025-06-19
                      space or control characters, of at   {name:a|b|c}     one of these words
                      most 512 bytes                       {name:path}      the rest of the key, any text
    {name:bytes}      any bytes without the separator
    {{ and }}         braces themselves: `{{{queue}}}:ready` puts the queue's name into a cluster hash tag
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec

from mpreg.errors import KeyspaceError
from mpreg.keyspace.placeholder import KINDS, UNPRINTED, Kind, Placeholder, Value, read, regex, write

KEY_BYTES_MAX = 8_192  # far over any sane key; a key this long is a value in the wrong place
PATTERN_CHARS_MAX = 1_024
NAME = re.compile(r"[a-z_][a-z0-9_]{0,63}", re.ASCII)
GLOB_SPECIAL = re.compile(rb"([\\*?\[\]^])")

Part = str | Placeholder


class Pattern(msgspec.Struct, frozen=True, dict=True):
    """Read it with `parse_pattern`. `text` is as declared, `parts` begin with the prefix."""

    text: str
    parts: tuple[Part, ...]
    separator: str
    prefix: str = ""

    @cached_property
    def placeholders(self) -> tuple[Placeholder, ...]:
        return tuple(part for part in self.parts if isinstance(part, Placeholder))

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(placeholder.name for placeholder in self.placeholders)

    @cached_property
    def head(self) -> bytes:
        """The literal bytes that every such key begins with."""
        first = self.parts[0] if self.parts else ""
        return first.encode() if isinstance(first, str) else b""

    @cached_property
    def literal_chars(self) -> int:
        return sum(len(part) for part in self.parts if isinstance(part, str))

    @cached_property
    def _matcher(self) -> re.Pattern[str]:
        return re.compile(
            "".join(
                re.escape(part) if isinstance(part, str) else f"(?P<{part.name}>{regex(part)})" for part in self.parts
            )
        )

    def build(self, values: Mapping[str, Any]) -> bytes:
        """The key of `values`, one for each placeholder."""
        names = self._names
        if values.keys() != names:
            missing, unknown = sorted(names - values.keys()), sorted(values.keys() - names)
            said = "; ".join(
                text
                for text in (
                    f"missing: {', '.join(missing)}" if missing else "",
                    f"unknown: {', '.join(unknown)}" if unknown else "",
                )
                if text
            )
            raise KeyspaceError(
                "KEYSPACE_INVALID_VALUE",
                f"{self.text} takes {', '.join(sorted(names)) or 'no values'} ({said})",
                field=(missing or unknown)[0],
            )
        text = "".join(part if isinstance(part, str) else write(part, values[part.name]) for part in self.parts)
        key = text.encode("utf-8", "surrogateescape")
        if len(key) > KEY_BYTES_MAX:
            raise KeyspaceError(
                "KEYSPACE_INVALID_VALUE",
                f"the key of {self.text} would have {len(key)} bytes; at most {KEY_BYTES_MAX} are allowed",
                field=self.placeholders[-1].name,
                limit=KEY_BYTES_MAX,
            )
        return key

    def parse(self, key: bytes) -> dict[str, Value] | None:
        """The values in `key`, or None when it does not fit this pattern."""
        return self.parse_text(key.decode("utf-8", "surrogateescape"))

    def parse_text(self, text: str) -> dict[str, Value] | None:
        found = self._matcher.fullmatch(text)
        if found is None:
            return None
        values: dict[str, Value] = {}
        for placeholder in self.placeholders:
            value = read(placeholder, found[placeholder.name])
            if value is None:
                return None
            values[placeholder.name] = value
        return values

    def glob(self, **known: Any) -> bytes:
        """The narrowest pattern for SCAN MATCH; it may match more, so parse every key again."""
        out = [
            escape_glob(part.encode())
            if isinstance(part, str)
            else escape_glob(write(part, known[part.name]).encode("utf-8", "surrogateescape"))
            if part.name in known
            else b"*"
            for part in self.parts
        ]
        return b"".join(out)


def escape_glob(literal: bytes) -> bytes:
    """`literal` as a glob that matches exactly it."""
    return GLOB_SPECIAL.sub(rb"\\\1", literal)


def parse_pattern(text: str, *, separator: str = ":", prefix: str = "") -> Pattern:
    """Read a pattern; one that can't be read, or could be read back in two ways, names its fault and place."""
    if not text or len(text) > PATTERN_CHARS_MAX:
        raise _invalid(text, f"a pattern has 1 to {PATTERN_CHARS_MAX} characters", 0)
    if len(separator) != 1 or separator.isalnum() or separator in "{}-" or not separator.isascii():
        raise _invalid(text, f"the separator is one ASCII character, no letter, digit, brace or '-': {separator!r}", 0)
    if "{" in prefix or "}" in prefix or not prefix.isprintable():
        raise _invalid(text, f"a prefix is printable and has no braces: {prefix!r}", 0)
    parts = _split(text)
    if prefix:
        parts = [prefix + parts[0], *parts[1:]] if isinstance(parts[0], str) else [prefix, *parts]
    tagged = any("{" in part for part in parts if isinstance(part, str))
    checked = [
        part if isinstance(part, str) else _with_refused(text, parts, index, separator, tagged)
        for index, part in enumerate(parts)
    ]
    names = [part.name for part in parts if isinstance(part, Placeholder)]
    if len(set(names)) != len(names):
        raise _invalid(text, "two placeholders have the same name", 0)
    return Pattern(text=text, parts=tuple(checked), separator=separator, prefix=prefix)


def _split(text: str) -> list[Part]:
    parts: list[Part] = []
    literal, at = "", 0
    while at < len(text):
        if text[at : at + 2] in ("{{", "}}"):
            # `{{{name}}}` is brace, placeholder, brace: the first two of three opening braces are the literal.
            literal, at = literal + text[at], at + 2
        elif text[at] == "}":
            raise _invalid(text, "a lone '}' ('}}' is the brace itself)", at)
        elif text[at] == "{":
            end = text.find("}", at)
            if end < 0:
                raise _invalid(text, "a '{' that nothing closes ('{{' is the brace itself)", at)
            if literal:
                parts.append(literal)
                literal = ""
            elif parts:
                raise _invalid(text, "two placeholders with nothing between them", at)
            parts.append(_placeholder(text, text[at + 1 : end], at))
            at = end + 1
        else:
            literal, at = literal + text[at], at + 1
    return [*parts, literal] if literal else parts


def _placeholder(text: str, inside: str, at: int) -> Placeholder:
    name, colon, spelled = inside.partition(":")
    if NAME.fullmatch(name) is None:
        raise _invalid(text, f"{name!r} is no name for a placeholder (lower case letters, digits, _)", at)
    if "|" in spelled:
        choices = tuple(spelled.split("|"))
        if "" in choices or len(set(choices)) != len(choices):
            raise _invalid(text, f"the choices of {name} must be different and not empty", at)
        return Placeholder(name, "choice", choices)
    kinds: dict[str, Kind] = {kind: kind for kind in KINDS}
    kind = kinds.get(spelled if colon else "str")
    if kind is None:
        raise _invalid(text, f"{spelled!r} is no kind of {name}; there are {', '.join(KINDS)} and a|b|c", at)
    return Placeholder(name, kind)


def _with_refused(text: str, parts: list[Part], index: int, separator: str, tagged: bool) -> Placeholder:
    """The placeholder with the characters that would make the key ambiguous: the separator and what follows."""
    part = parts[index]
    assert isinstance(part, Placeholder)
    follower = parts[index + 1] if index + 1 < len(parts) else ""
    assert isinstance(follower, str), "two placeholders never touch"
    refused = {separator, *follower[:1]} | ({"{", "}"} if tagged else set())
    at = text.find("{" + part.name)
    match part.kind:
        case "path":
            if follower:
                raise _invalid(text, f"{part.name} takes the rest of the key, so nothing can follow it", at)
            if tagged:
                raise _invalid(text, f"{part.name} could hold braces, which would move the hash tag", at)
            return part
        case "int" | "date":
            if follower[:1].isdigit():
                raise _invalid(text, f"a digit can't follow {part.name}", at)
            return part
        case "choice":
            bad = refused.intersection("".join(part.choices))
            if bad:
                raise _invalid(text, f"a choice of {part.name} holds {min(bad)!r}, which ends it", at)
            return part
        case "word":
            return Placeholder(part.name, part.kind, refused=UNPRINTED | refused)
        case _:
            return Placeholder(part.name, part.kind, refused=frozenset(refused))


def _invalid(text: str, why: str, at: int) -> KeyspaceError:
    return KeyspaceError("KEYSPACE_INVALID_PATTERN", f"{text!r:.200}: {why}", pattern=text, position=at)
