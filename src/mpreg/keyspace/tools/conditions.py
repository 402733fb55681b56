"""Conditions that a key must meet to be purged: `ttl_remaining < 1h`, `type in hash,set`. Pure.

The operators are those of the cache's namespace operations, spelled for a shell (`<`) or as there (`$lt`). What is not
known of a key meets no condition, so it is kept.

    ttl_remaining   seconds until it expires; `none` for a key that never does, which meets only `= none` and `!=`
    idle            seconds since it was last used (not under an LFU policy)
    frequency       the server's logarithmic counter of uses (only under an LFU policy)
    size_bytes      memory that it takes
    age             seconds since it was written: known where its declaration gives every write the same TTL
    type            string, hash, list, set, zset, stream
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

from mpreg.errors import KeyspaceError

CONDITIONS_MAX = 32
FIELDS: dict[str, Literal["seconds", "bytes", "number", "word"]] = {
    "ttl_remaining": "seconds",
    "idle": "seconds",
    "frequency": "number",
    "size_bytes": "bytes",
    "age": "seconds",
    "type": "word",
}
UNITS: dict[str, dict[str, float]] = {
    "seconds": {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400},
    "bytes": {"": 1, "b": 1, "kb": 1024, "mb": 1024**2, "gb": 1024**3},
    "number": {"": 1},
}
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$lt": operator.lt,
    "$lte": operator.le,
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$eq": operator.eq,
    "$ne": operator.ne,
    "$in": lambda value, values: value in values,
}
_SPELLED = {"<": "$lt", "<=": "$lte", ">": "$gt", ">=": "$gte", "=": "$eq", "==": "$eq", "!=": "$ne", "in": "$in"}
_WRITTEN = re.compile(r"\s*([a-z_]+)\s*(<=|>=|!=|==|<|>|=|\bin\b|\$[a-z]+)\s*(.+?)\s*", re.ASCII)
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.ASCII)

NEVER = math.inf
"""The `ttl_remaining` of a key that does not expire."""
Scalar = float | str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a key; None where it is not."""

    type: str
    ttl_remaining: float | None
    idle: float | None = None
    frequency: float | None = None
    size_bytes: float | None = None
    age: float | None = None


class Condition(msgspec.Struct, frozen=True):
    field: str
    operator: str
    value: Scalar | tuple[Scalar, ...]

    def met_by(self, facts: Facts) -> bool | None:
        """None when the fact is not known."""
        fact: Scalar | None = getattr(facts, self.field)
        if fact is None:
            return None
        if fact == NEVER and self.operator not in ("$eq", "$ne", "$in"):
            return False
        return OPERATORS[self.operator](fact, self.value)


def parse(text: str) -> list[Condition]:
    """`idle >= 1d`, or JSON as the cache takes it: `{"idle": {"$gte": 86400}}`."""
    if text.lstrip().startswith("{"):
        return _from_json(text)
    found = _WRITTEN.fullmatch(text)
    if found is None:
        raise _invalid(f"{text!r:.100} is no condition; write for example 'idle >= 1d'")
    field, spelled, value = found.groups()
    return [_condition(field, _SPELLED.get(spelled, spelled), value)]


def all_met(conditions: Iterable[Condition], facts: Facts) -> bool | None:
    """False if any is not met; else None if any is not known; else True."""
    met = [condition.met_by(facts) for condition in conditions]
    return False if False in met else None if None in met else True


def _from_json(text: str) -> list[Condition]:
    try:
        read = msgspec.json.decode(text, type=dict[str, dict[str, Any]])
    except msgspec.MsgspecError as error:
        raise _invalid(f"{text!r:.100} is no condition: {error}") from None
    return [_condition(field, name, value) for field, tests in read.items() for name, value in tests.items()]


def _condition(field: str, name: str, value: Any) -> Condition:
    if field not in FIELDS:
        raise _invalid(f"{field!r:.60} is nothing that is known of keys; there are {', '.join(FIELDS)}")
    if name not in OPERATORS:
        raise _invalid(f"{name!r:.60} is no operator; there are {', '.join([*_SPELLED, *OPERATORS])}")
    if FIELDS[field] == "word" and name not in ("$eq", "$ne", "$in"):
        raise _invalid(f"{field} has no order, so {name} says nothing of it")
    if name == "$in":
        values = value if isinstance(value, list) else str(value).split(",")
        return Condition(field, name, tuple(_value(field, one) for one in values))
    return Condition(field, name, _value(field, value))


def _value(field: str, value: Any) -> Scalar:
    kind = FIELDS[field]
    if isinstance(value, str):
        value = value.strip()
    if kind == "word":
        if not isinstance(value, str) or not value:
            raise _invalid(f"{field} is a word, not {value!r:.60}")
        return value
    if field == "ttl_remaining" and value in ("none", None):
        return NEVER
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0:
        return float(value)
    found = _AMOUNT.fullmatch(value.lower()) if isinstance(value, str) else None
    if found is None or found[2] not in UNITS[kind]:
        units = ", ".join(unit for unit in UNITS[kind] if unit)
        raise _invalid(f"{field} is a number{f' with one of {units}' if units else ''}, not {value!r:.60}")
    return float(found[1]) * UNITS[kind][found[2]]


def _invalid(why: str) -> KeyspaceError:
    return KeyspaceError("KEYSPACE_INVALID_QUERY", why, field="where")
