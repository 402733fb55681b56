"""What a queue, a subscriber, a group and a topic may be called."""

from __future__ import annotations

import unicodedata
from typing import Any, Final

from mpreg.errors import QueueError

NAME_BYTES_MAX: Final = 200
TOPIC_BYTES_MAX: Final = 1024
LEVELS_MAX: Final = 64
DEAD: Final = ".dlq"
_REFUSED: Final = frozenset("{}:")
_CONTROL: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})


def invalid(field: str, why: str, **details: Any) -> QueueError:
    return QueueError("QUEUE_INVALID", f"{field}: {why}", field=field, **details)


def check_queue_name(name: str, *, dead_letters: bool = True) -> str:
    """The name of a queue. `orders.dlq` is the queue of the dead letters of `orders`, and is made with it."""
    base = name.removesuffix(DEAD)
    _check(base, "queue_name", NAME_BYTES_MAX)
    if _REFUSED.intersection(base) or base != base.strip():
        raise invalid("queue_name", f"no braces, no colon, no space around it: {name!r:.100}")
    if base.endswith(DEAD) or (base != name and not dead_letters):
        raise invalid("queue_name", f"a name that ends in {DEAD} is that of dead letters: {name!r:.100}")
    return name


def check_text(text: str, field: str, *, empty: bool = False) -> str:
    """A subscriber's id or a group."""
    if text or not empty:
        _check(text, field, NAME_BYTES_MAX)
    return text


def check_topic(topic: str) -> str:
    """A topic to send to: as in pub/sub, levels joined by `.`, no wildcards."""
    levels = _levels(topic, "topic")
    if "*" in levels or "#" in levels:
        raise invalid("topic", f"a topic to send to has no wildcard: {topic!r:.100}")
    return topic


def check_pattern(pattern: str) -> str:
    """`*` is exactly one level, `#` zero or more (as R-P1)."""
    for level in _levels(pattern, "topic_pattern"):
        if len(level) > 1 and ("*" in level or "#" in level):
            raise invalid("topic_pattern", f"a wildcard is a whole level: {pattern!r:.100}")
    return pattern


def _levels(text: str, field: str) -> list[str]:
    _check(text, field, TOPIC_BYTES_MAX)
    levels = text.split(".")
    if "" in levels:
        raise invalid(field, f"an empty level: {text!r:.100}")
    if len(levels) > LEVELS_MAX:
        raise invalid(field, f"over {LEVELS_MAX} levels", limit=LEVELS_MAX)
    return levels


def _check(text: str, field: str, bytes_max: int) -> None:
    if not text:
        raise invalid(field, "is empty")
    if len(text) > bytes_max or len(text.encode(errors="replace")) > bytes_max:
        raise invalid(field, f"has over {bytes_max} bytes", limit=bytes_max)
    if not text.isprintable() and any(unicodedata.category(c) in _CONTROL for c in text):
        raise invalid(field, f"has a control character: {text!r:.100}")
