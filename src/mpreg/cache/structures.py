"""Sets, lists, maps and sorted sets in the store (R-C4): each verb one script on native types.

A value is MessagePack; in sets, sorted sets and compared values a map's keys are in order, so equal is equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from mpreg.cache import map_paths
from mpreg.cache.key import CacheKey, invalid, key_bytes, parse_reference
from mpreg.cache.requests import member_in, plain, ttl_ms, value_in, value_out, within
from mpreg.cache.settings import CacheSettings
from mpreg.cache.store_level import TOO_LARGE, StoreLevel, refused, script
from mpreg.errors import CacheError
from mpreg.store import Script
from mpreg.wire.cache import RangeSpec, StructureOperation
from mpreg.wire.encoding import Encoding

LIMIT_DEFAULT: Final = 100
ARGUMENTS_MAX: Final = 50_000
OTHER_SETS_MAX: Final = 64
_PATH: Final = "$.structure_operation"

SCRIPTS: Final[dict[str, Script]] = {
    "set": script("set", "structure"),
    "list": script("list", "structure"),
    "map": script("map", "structure", "numbers"),
    "sorted_set": script("sorted_set", "structure"),
}
COMBINE: Final = Script.load("mpreg.cache", "lua/set_combine.lua")
_NATIVE: Final = {"union": "SUNION", "intersection": "SINTER", "difference": "SDIFF"}
VERBS: Final[dict[str, frozenset[str]]] = {
    "set": frozenset({"add", "remove", "contains", "size", "union", "intersection", "difference", "members"}),
    "list": frozenset({"append", "prepend", "pop_front", "pop_back", "get_range", "length", "insert"}),
    "map": frozenset({"set_field", "get_fields", "remove_fields", "increment_field", "keys", "values", "size"}),
    "sorted_set": frozenset({"add_scored", "remove", "get_top", "get_bottom", "get_range", "get_score", "size"}),
}
WRITES: Final = frozenset(
    {"add", "remove", "append", "prepend", "insert", "pop_front", "pop_back"}
    | {"set_field", "remove_fields", "increment_field", "add_scored"}
)


class Answer(msgspec.Struct, frozen=True):
    there: bool
    result: dict[str, Any]
    changed: bool
    """Whether it may have changed something."""


class Structures:
    def __init__(self, level: StoreLevel, settings: CacheSettings) -> None:
        self._level = level
        self._settings = settings

    async def run(self, key: CacheKey, asked: StructureOperation, encoding: Encoding) -> Answer:
        """Raises CACHE_WRONG_TYPE and others, having changed nothing."""
        if asked.operation not in VERBS[asked.structure_type]:
            known = ", ".join(sorted(VERBS[asked.structure_type]))
            raise invalid(f"{_PATH}.operation", f"a {asked.structure_type} has no {asked.operation!r}; it has {known}")
        call = _Call(key_bytes(key), asked, encoding, self._settings, self._level)
        run: Callable[[_Call], Any] = _RUN[asked.structure_type]
        there, result = await run(call)
        if not asked.options.return_size:
            result.pop("size", None)
        changed = asked.operation in WRITES and bool(result.pop("_changed", True)) and there
        return Answer(there, result, changed)


class _Call:
    """One operation and what it needs."""

    def __init__(
        self, key: bytes, asked: StructureOperation, encoding: Encoding, settings: CacheSettings, level: StoreLevel
    ) -> None:
        self.key = key
        self.asked = asked
        self.verb = asked.operation
        self.encoding = encoding
        self.settings = settings
        self.level = level

    async def script(self, *args: Any, key: bytes | None = None, verb: str | None = None) -> list[Any]:
        if len(args) > ARGUMENTS_MAX:
            raise CacheError("CACHE_TOO_LARGE", f"at most {ARGUMENTS_MAX} values at once", limit=ARGUMENTS_MAX)
        reads = (verb or self.verb) not in WRITES
        answer: list[Any] = await self.level.run(
            SCRIPTS[self.asked.structure_type],
            key or self.key,
            verb or self.verb,
            "1" if self.asked.options.create_if_missing else "",
            0 if reads else ttl_ms(self.asked.ttl_seconds, self.settings, f"{_PATH}.ttl_seconds"),
            self.settings.answer_elements_max if reads else self.settings.elements_max,
            *args,
        )
        if answer[0] < 0:
            error = refused(answer[0])
            if answer[0] == TOO_LARGE:
                error.details["limit"] = self.settings.answer_elements_max if reads else self.settings.elements_max
            if len(answer) > 1 and isinstance(answer[1], bytes):
                error.details["field"] = map_paths.shown(answer[1])
            elif len(answer) > 1:
                error.details["size"] = answer[1]
            raise error
        return answer

    def members(self, values: tuple[Raw, ...] | None = None) -> list[bytes]:
        given = self.asked.values if values is None else values
        return [
            member_in(value, self.encoding, self.settings, f"{_PATH}.values[{at}]") for at, value in enumerate(given)
        ]

    def some_members(self) -> list[bytes]:
        if not self.asked.values:
            raise invalid(f"{_PATH}.values", "is empty")
        return self.members()

    def limit(self) -> int:
        return within(self.asked.limit, 1, self.settings.answer_elements_max, LIMIT_DEFAULT, f"{_PATH}.limit")

    def range(self) -> RangeSpec:
        return RangeSpec() if self.asked.range_spec is UNSET else self.asked.range_spec


# --- sets -------------------------------------------------------------------------------------------------------------


async def _set(call: _Call) -> tuple[bool, dict[str, Any]]:
    match call.verb:
        case "add" | "remove":
            answer = await call.script(*call.some_members())
            changed, size = answer[1:3] if len(answer) > 2 else (0, 0)
            return bool(answer[0]), {"changed": changed, "size": size, "_changed": changed}
        case "contains":
            members = call.some_members()
            answer = await call.script(*members)
            found = answer[1] if answer[0] else [0] * len(members)
            return bool(answer[0]), {"values": [bool(each) for each in found]}
        case "size":
            answer = await call.script()
            return bool(answer[0]), {"size": answer[1] if answer[0] else 0}
    return await _combined(call)


async def _combined(call: _Call) -> tuple[bool, dict[str, Any]]:
    """Members, of one set or of several. Several are read at one moment if they are in one slot, as all are outside of
    a cluster; else one after the other."""
    others = call.asked.options.other_sets
    if call.verb == "members" and others:
        raise invalid(f"{_PATH}.options.other_sets", "members are those of one set")
    if call.verb != "members" and not others:
        raise invalid(f"{_PATH}.options.other_sets", "names no set")
    if len(others) > OTHER_SETS_MAX:
        raise invalid(f"{_PATH}.options.other_sets", f"at most {OTHER_SETS_MAX}", limit=OTHER_SETS_MAX)
    path = f"{_PATH}.options.other_sets"
    keys = [call.key, *(key_bytes(parse_reference(name, path=f"{path}[{at}]")) for at, name in enumerate(others))]
    if len(keys) > 1 and call.level.in_one_slot(keys):
        there, members = await _combined_at_once(call, keys)
    else:
        there, members = await _combined_one_by_one(call, keys)
    return there, {"values": [value_out(member) for member in sorted(members)]}


async def _combined_at_once(call: _Call, keys: list[bytes]) -> tuple[bool, Collection[bytes]]:
    limit = call.settings.answer_elements_max
    first, any_there, members = [*await call.level.run_on(COMBINE, keys, _NATIVE[call.verb], limit), 0, []][:3]
    if first < 0:
        raise refused(first)
    return bool(any_there if call.verb == "union" else first), members


async def _combined_one_by_one(call: _Call, keys: list[bytes]) -> tuple[bool, Collection[bytes]]:
    there, found = False, list[set[bytes]]()
    for key in keys:
        answer = await call.script(key=key, verb="members")
        found.append(set(answer[1]) if answer[0] else set())
        there = there or (bool(answer[0]) and (key is call.key or call.verb == "union"))
    first, rest = found[0], found[1:]
    if call.verb == "union":
        members = first.union(*rest)
    elif call.verb == "intersection":
        members = first.intersection(*rest)
    else:
        members = first.difference(*rest)
    if len(members) > call.settings.answer_elements_max:
        raise refused(TOO_LARGE)
    return there, members


# --- lists ------------------------------------------------------------------------------------------------------------


async def _list(call: _Call) -> tuple[bool, dict[str, Any]]:
    match call.verb:
        case "append" | "prepend" | "insert":
            if not call.asked.values:
                raise invalid(f"{_PATH}.values", "is empty")
            if call.verb == "insert" and call.asked.index is UNSET:
                raise invalid(f"{_PATH}.index", "is missing")
            values = [
                value_in(value, call.encoding, call.settings, f"{_PATH}.values[{at}]")
                for at, value in enumerate(call.asked.values)
            ]
            index = [call.asked.index] if call.verb == "insert" else []
            answer = await call.script(*index, *values)
            return bool(answer[0]), {"size": answer[1]}
        case "pop_front" | "pop_back":
            answer = await call.script()
            if not answer[0]:
                return False, {"value": None, "size": 0}
            return True, {"value": value_out(answer[1]), "size": answer[2]}
        case "length":
            answer = await call.script()
            return bool(answer[0]), {"size": answer[1] if answer[0] else 0}
    asked = call.range()
    start = 0 if asked.start is UNSET else asked.start
    end: int | str = "" if asked.end is UNSET or asked.end is None else asked.end
    answer = await call.script(start, end)
    return bool(answer[0]), {"values": [value_out(each) for each in answer[1]] if answer[0] else []}


# --- sorted sets ------------------------------------------------------------------------------------------------------


async def _sorted_set(call: _Call) -> tuple[bool, dict[str, Any]]:
    match call.verb:
        case "add_scored":
            given = call.asked.scored_values
            if not given:
                raise invalid(f"{_PATH}.scored_values", "is empty")
            members = call.members(tuple(each.value for each in given))
            pairs: list[Any] = []
            for at, (each, member) in enumerate(zip(given, members, strict=True)):
                if math.isnan(each.score):
                    raise invalid(f"{_PATH}.scored_values[{at}].score", "is not a number")
                pairs += (_score(each.score), member)
            answer = await call.script(*pairs)
            return bool(answer[0]), {"changed": answer[1], "size": answer[2], "_changed": answer[1]}
        case "remove":
            answer = await call.script(*call.some_members())
            changed, size = answer[1:3] if answer[0] else (0, 0)
            return bool(answer[0]), {"changed": changed, "size": size, "_changed": changed}
        case "size":
            answer = await call.script()
            return bool(answer[0]), {"size": answer[1] if answer[0] else 0}
        case "get_score":
            members = call.some_members()
            answer = await call.script(*members)
            scores = answer[1] if answer[0] else [None] * len(members)
            return bool(answer[0]), {"scores": [None if score is None else _number(score) for score in scores]}
        case "get_top" | "get_bottom":
            answer = await call.script(call.limit())
        case _:
            asked = call.range()
            answer = await call.script(
                _bound(asked.min_score, "-inf", "min_score"), _bound(asked.max_score, "+inf", "max_score"), call.limit()
            )
    flat = answer[1] if answer[0] else []
    scored = [
        {"value": value_out(member), "score": _number(score)}
        for member, score in zip(flat[::2], flat[1::2], strict=True)
    ]
    return bool(answer[0]), {"scored_values": scored}


def _bound(score: Any, default: str, field: str) -> str:
    if score is UNSET or score is None:
        return default
    if math.isnan(score):
        raise invalid(f"{_PATH}.range_spec.{field}", "is not a number")
    return _score(score)


def _score(score: float) -> str:
    return ("+inf" if score > 0 else "-inf") if math.isinf(score) else repr(float(score))


def _number(score: bytes | float) -> float:
    """Whole scores are whole numbers."""
    number = float(score)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


# --- maps -------------------------------------------------------------------------------------------------------------


async def _map(call: _Call) -> tuple[bool, dict[str, Any]]:
    match call.verb:
        case "set_field" | "increment_field":
            updates = _updates(call)
            answer = await call.script(*updates)
            if call.verb == "increment_field":
                return bool(answer[0]), {"value": value_out(answer[1]) if answer[0] else None}
            return bool(answer[0]), {"changed": answer[1], "size": answer[2]}
        case "remove_fields":
            answer = await call.script(*_fields(call))
            changed, size = answer[1:3] if answer[0] else (0, 0)
            return bool(answer[0]), {"changed": changed, "size": size, "_changed": changed}
        case "get_fields":
            answer = await call.script(*_fields(call))
            parts = answer[1] if answer[0] else []
            found = {
                name: map_paths.nested(part, stored)
                for name, stored, part in zip(call.asked.fields, _fields(call), parts, strict=False)
                if part
            }
            return bool(answer[0]), {"fields": found}
        case "size":
            answer = await call.script()
            return bool(answer[0]), {"size": answer[1] if answer[0] else 0}
    answer = await call.script()
    whole = map_paths.nested(answer[1], b"") if answer[0] else {}
    return bool(answer[0]), {"values": list(whole) if call.verb == "keys" else list(whole.values())}


def _fields(call: _Call) -> list[bytes]:
    if not call.asked.fields:
        raise invalid(f"{_PATH}.fields", "is empty")
    return [map_paths.stored(name, f"{_PATH}.fields[{at}]") for at, name in enumerate(call.asked.fields)]


def _updates(call: _Call) -> list[bytes | str]:
    given = call.asked.field_updates
    if given is UNSET or not given:
        raise invalid(f"{_PATH}.field_updates", "is empty")
    if call.verb == "increment_field" and len(given) != 1:
        raise invalid(f"{_PATH}.field_updates", "increment_field takes one field; set_field takes several")
    flat: list[bytes | str] = []
    paths: list[tuple[bytes, str]] = []
    for name, raw in given.items():
        path = f"{_PATH}.field_updates.{name}"
        stored = map_paths.stored(name, path)
        paths.append((stored, path))
        value = plain(raw, call.encoding, path)
        by = map_paths.increment_in(value, path, bare=call.verb == "increment_field")
        if by is not None:
            flat += ("i", stored, by)
        else:
            flat += map_paths.flat(stored, value, call.settings, path)
    map_paths.check_apart(paths)
    return flat


_RUN: Final[dict[str, Callable[[_Call], Any]]] = {
    "set": _set,
    "list": _list,
    "map": _map,
    "sorted_set": _sorted_set,
}
