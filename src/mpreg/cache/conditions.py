"""Comparisons in requests: `{"ttl_remaining": {"$lt": 60}, "access_count": {"$eq": 0}}` (R-C8). Pure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from mpreg.cache.key import invalid

NUMERIC: Final = ("ttl_remaining", "access_count", "size_bytes", "age")
"""Of an entry; seconds and bytes."""

_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$lt": operator.lt,
    "$lte": operator.le,
    "$gt": operator.gt,
    "$gte": operator.ge,
}
OPERATORS: Final = (*_ORDER, "$eq", "$ne", "$in")
IN_MAX: Final = 1_000

Comparison = Mapping[str, Any]


def check(conditions: Mapping[str, Comparison], path: str) -> None:
    """Every field and operator is known, and something could fulfil them all."""
    for field, comparison in conditions.items():
        where = f"{path}.{field}"
        if field not in NUMERIC:
            raise invalid(where, f"no such field; there are {', '.join(NUMERIC)}")
        check_comparison(comparison, where, numeric=True)


def check_comparison(comparison: Comparison, path: str, *, numeric: bool = False) -> None:
    if not comparison:
        raise invalid(path, "compares with nothing")
    for name, value in comparison.items():
        where = f"{path}.{name}"
        if name not in OPERATORS:
            raise invalid(where, f"no such operator; there are {', '.join(OPERATORS)}")
        if name == "$in":
            if not isinstance(value, list) or not value or len(value) > IN_MAX:
                raise invalid(where, f"a list of 1 to {IN_MAX} values", limit=IN_MAX)
            values = value
        else:
            values = [value]
        numbers = all(map(_is_number, values))
        texts = all(isinstance(each, str) for each in values)
        if not numbers and (numeric or (name in _ORDER and not texts)):
            raise invalid(where, f"a number is expected, not {value!r:.60}")
    low = _bound(comparison, ("$gt", "$gte"), max)
    high = _bound(comparison, ("$lt", "$lte"), min)
    strict = comparison.get("$gt") == low or comparison.get("$lt") == high
    if low is not None and high is not None and type(low) is type(high) and (low > high or (strict and low == high)):
        raise invalid(path, f"nothing is over {low} and under {high}")
    if "$eq" in comparison and not holds({k: v for k, v in comparison.items() if k != "$eq"}, comparison["$eq"]):
        raise invalid(path, f"nothing is {comparison['$eq']!r:.60} and fulfils the rest")


def _bound(comparison: Comparison, names: tuple[str, str], choose: Callable[[list[Any]], Any]) -> Any:
    given = [comparison[name] for name in names if name in comparison]
    return choose(given) if given and all(map(_is_number, given)) else None


def holds(comparison: Comparison, value: Any) -> bool:
    """Nothing is less or greater than a value of another kind, or than one that is not there."""
    for name, other in comparison.items():
        if name == "$in":
            fulfilled = any(_same(value, each) for each in other)
        elif name in ("$eq", "$ne"):
            fulfilled = _same(value, other) is (name == "$eq")
        else:
            fulfilled = _comparable(value, other) and _ORDER[name](value, other)
        if not fulfilled:
            return False
    return True


def all_hold(conditions: Mapping[str, Comparison], values: Mapping[str, float | None]) -> bool:
    return all(
        values[field] is not None and holds(comparison, values[field]) for field, comparison in conditions.items()
    )


_MISSING: Final = object()


def at_path(value: Any, path: str) -> Any:
    """What a dotted path leads to in a value; `MISSING` if it leads nowhere."""
    for name in path.split("."):
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return _MISSING
    return value


def is_missing(value: Any) -> bool:
    return value is _MISSING


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _comparable(one: Any, other: Any) -> bool:
    return (_is_number(one) and _is_number(other)) or (isinstance(one, str) and isinstance(other, str))


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
