"""Patterns of keys (R-C9): a key's name is its namespace and its identifier, joined by `.`; levels are split at `.`.

`*` stands for any text within a level; a level `*` at the end stands for the rest, however many levels.
"""

from __future__ import annotations

import re

import msgspec

from mpreg.cache.key import PREFIX, invalid, parse_key
from mpreg.keyspace import escape_glob

PATTERN_BYTES_MAX = 1_300
STARS_MAX = 16


class KeyPattern(msgspec.Struct, frozen=True):
    text: str
    expression: re.Pattern[str]

    @classmethod
    def parse(cls, text: str, path: str) -> KeyPattern:
        if not text or len(text.encode(errors="replace")) > PATTERN_BYTES_MAX:
            raise invalid(path, f"has 1 to {PATTERN_BYTES_MAX} bytes", limit=PATTERN_BYTES_MAX)
        if "" in text.split("."):
            raise invalid(path, f"an empty level: {text!r:.100}")
        if text.count("*") > STARS_MAX:
            raise invalid(path, f"at most {STARS_MAX} stars", limit=STARS_MAX)
        *levels, last = text.split(".")
        parts = [_level(level) for level in levels]
        parts.append(".+" if last == "*" else _level(last))
        return cls(text, re.compile(r"\.".join(parts), re.DOTALL))

    @property
    def matches_everything(self) -> bool:
        return not self.text.replace("*", "").replace(".", "")

    def matches(self, key: bytes) -> bool:
        try:
            parsed = parse_key(key)
        except ValueError:
            return False
        return self.expression.fullmatch(f"{parsed.namespace}.{parsed.identifier}") is not None

    @property
    def glob(self) -> bytes:
        """For SCAN: every key that matches, and others, for where the namespace ends the pattern does not say."""
        sure = self.text.partition("*")[0].partition(".")[0]
        return PREFIX + escape_glob(sure.encode()) + b"*"


def _level(level: str) -> str:
    return "[^.]*?".join(map(re.escape, re.sub(r"\*+", "*", level).split("*")))


class IdentifierPattern(msgspec.Struct, frozen=True):
    """Within one namespace: `*` is any text."""

    namespace: str
    expression: re.Pattern[str]
    glob: bytes

    @classmethod
    def parse(cls, namespace: str, text: str, path: str) -> IdentifierPattern:
        if not text or len(text.encode(errors="replace")) > PATTERN_BYTES_MAX:
            raise invalid(path, f"has 1 to {PATTERN_BYTES_MAX} bytes", limit=PATTERN_BYTES_MAX)
        if text.count("*") > STARS_MAX:
            raise invalid(path, f"at most {STARS_MAX} stars", limit=STARS_MAX)
        parts = re.sub(r"\*+", "*", text).split("*")
        glob = PREFIX + escape_glob(namespace.encode()) + b":*:" + b"*".join(escape_glob(p.encode()) for p in parts)
        return cls(namespace, re.compile(".*?".join(map(re.escape, parts)), re.DOTALL), glob)

    def matches(self, key: bytes) -> bool:
        try:
            parsed = parse_key(key)
        except ValueError:
            return False
        return parsed.namespace == self.namespace and self.expression.fullmatch(parsed.identifier) is not None
