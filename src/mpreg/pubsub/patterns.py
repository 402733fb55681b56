"""Topics and patterns as text: what is allowed, split into levels, and brought to one form (R-P1).

A topic is levels joined by `.`. In a pattern `*` stands for exactly one level, `#` for zero or more. Patterns that
match the same topics by the same wildcards (`#.*`, `*.#`, `*.#.#`) have one canonical form, so they share one entry
everywhere.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable
from typing import Final

from mpreg.errors import PubSubError

TOPIC_BYTES_MAX: Final = 1024
LEVELS_MAX: Final = 64
ONE: Final = "*"
MANY: Final = "#"

Levels = tuple[str, ...]
"""A topic or a canonical pattern, split."""


def split_topic(topic: str) -> list[str]:
    """The levels of a topic to publish to; `PUBSUB_INVALID_TOPIC` if it is none."""
    _check_length("PUBSUB_INVALID_TOPIC", topic)
    levels = topic.split(".")
    if ONE in levels or MANY in levels:
        raise _refused("PUBSUB_INVALID_TOPIC", topic, "has a wildcard level", limit="no `*`, no `#`")
    _check_levels("PUBSUB_INVALID_TOPIC", topic, levels)
    return levels


def parse_pattern(pattern: str, *, exact: bool = False) -> Levels | None:
    """The canonical levels; None for an exact pattern that names no possible topic, as it has a wildcard level."""
    _check_length("PUBSUB_INVALID_PATTERN", pattern)
    levels = pattern.split(".")
    _check_levels("PUBSUB_INVALID_PATTERN", pattern, levels)
    if exact:
        return None if ONE in levels or MANY in levels else tuple(map(sys.intern, levels))
    for level in levels:
        if len(level) > 1 and (ONE in level or MANY in level):
            raise _refused(
                "PUBSUB_INVALID_PATTERN", pattern, "has a wildcard inside a level", limit="a wildcard is a whole level"
            )
    return _canonical(levels)


def join_levels(levels: Iterable[str]) -> str:
    return ".".join(levels)


def _canonical(levels: list[str]) -> Levels:
    """In a run of wildcards only the number of `*` counts, and whether there is any `#`: `*`s first, then one `#`."""
    if MANY not in levels:
        return tuple(map(sys.intern, levels))
    out: list[str] = []
    pending = False
    for level in levels:
        if level == MANY:
            pending = True
            continue
        if pending and level != ONE:
            out.append(MANY)
            pending = False
        out.append(sys.intern(level))
    if pending:
        out.append(MANY)
    return tuple(out)


def _check_length(code: str, text: str) -> None:
    """Before the text is split, as that takes memory by its length."""
    if len(text) > TOPIC_BYTES_MAX or (not text.isascii() and len(text.encode(errors="replace")) > TOPIC_BYTES_MAX):
        raise _refused(code, text, "is too long", limit=f"{TOPIC_BYTES_MAX} bytes")


def _check_levels(code: str, text: str, levels: list[str]) -> None:
    if len(levels) > LEVELS_MAX:
        raise _refused(code, text, "has too many levels", limit=f"{LEVELS_MAX} levels")
    if "" in levels:
        raise _refused(code, text, "has an empty level", limit="a level has at least one character")
    if not text.isprintable() and any(unicodedata.category(c) in _UNPRINTABLE for c in text):
        raise _refused(code, text, "has a control character", limit="printable characters")


_UNPRINTABLE: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Control characters, lone surrogates (they have no UTF-8), line and paragraph separators."""

_QUOTED_MAX: Final = 80


def _refused(code: str, text: str, problem: str, *, limit: str) -> PubSubError:
    field = "topic" if code == "PUBSUB_INVALID_TOPIC" else "pattern"
    quoted = ascii(text[:_QUOTED_MAX]) + ("…" if len(text) > _QUOTED_MAX else "")
    return PubSubError(code, f"The {field} {quoted} {problem} ({limit})", field=field, limit=limit)
