"""The scripts on a real store against a dict: every verb of values, leases and structures, in random order."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec import Raw
from tests.cache.naive_map import NaiveMap, WrongType
from tests.store.servers import StoreServers

from mpreg.cache.clock import StoreClock
from mpreg.cache.key import CacheKey, key_bytes
from mpreg.cache.settings import CacheSettings
from mpreg.cache.store_level import StoreLevel
from mpreg.cache.structures import Structures
from mpreg.errors import CacheError
from mpreg.store import Store, connect
from mpreg.wire.cache import RangeSpec, ScoredValue, StructureOperation, StructureOptions
from mpreg.wire.encoding import Encoding

NAMES = itertools.count()
pack = msgspec.msgpack.encode
unpack = msgspec.msgpack.decode

identifiers = st.sampled_from(["a", "b", "c"])
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**40), 2**40), st.sampled_from([0.5, -1.5]), st.text(max_size=3)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
names = st.sampled_from(["x", "y", "z"])
paths = st.lists(names, min_size=1, max_size=3).map(".".join)
nested = st.recursive(scalars, lambda inner: st.dictionaries(names, inner, max_size=2), max_leaves=4)
small = st.lists(st.sampled_from([1, "1", None, [1], {"k": 1}, 2.5]), min_size=1, max_size=3)


class Machine(RuleBasedStateMachine):
    url: str

    @initialize()
    def begin(self) -> None:
        self.runner = asyncio.Runner()
        self.model: dict[str, tuple[str, Any]] = {}
        self.versions: dict[str, int] = {}
        self.leases: dict[str, str] = {}
        self.namespace = f"model{next(NAMES)}"
        self.runner.run(self._open())

    async def _open(self) -> None:
        self.store: Store = await connect(self.url)
        self.clock = StoreClock(time.monotonic)
        self.level = StoreLevel(self.store, self.clock)
        self.structures = Structures(self.level, CacheSettings())
        await self.level.read_clock()

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.runner.run(self.store.close())
            self.runner.close()

    def run(self, awaitable: Any) -> Any:
        return self.runner.run(awaitable)

    def key(self, identifier: str) -> bytes:
        return key_bytes(CacheKey(self.namespace, identifier))

    def kind(self, identifier: str) -> str | None:
        return self.model[identifier][0] if identifier in self.model else None

    def is_refused(self, identifier: str, wanted: str, work: Any) -> bool:
        """Whether another type is there; then the operation must say so, and the invariant that nothing changed."""
        if self.kind(identifier) in (None, wanted):
            return False
        with pytest.raises(CacheError) as refused:
            self.run(work)
        assert refused.value.code == "CACHE_WRONG_TYPE"
        return True

    def written(self, identifier: str, version: int, value: Any) -> None:
        assert version > self.versions.get(identifier, 0), "versions grow, over deletes too"
        self.versions[identifier] = version
        self.model[identifier] = ("value", value)
        self.leases.pop(identifier, None)

    # --- values ---------------------------------------------------------------------------------------------------

    @rule(identifier=identifiers, value=values)
    def put(self, identifier: str, value: Any) -> None:
        work = self.level.put(self.key(identifier), pack(value), wants_old=True)
        if self.is_refused(identifier, "value", work):
            return
        before = self.model.get(identifier)
        written = self.run(work)
        assert written is not None
        old = None if written.old is None else ("value", unpack(written.old.entry.value))
        assert old == before
        self.written(identifier, written.version, value)

    @rule(identifier=identifiers, value=values, ahead=st.sampled_from([-1000, 0, 1000]))
    def copy_of_a_version(self, identifier: str, value: Any, ahead: int) -> None:
        version = (self.versions.get(identifier) or 10**15) + ahead
        work = self.level.put(self.key(identifier), pack(value), version=version)
        if self.is_refused(identifier, "value", work):
            return
        written = self.run(work)
        if version > self.versions.get(identifier, 0):
            assert written is not None
            self.written(identifier, version, value)
        else:
            assert written is None, "a delete, or a later write, is not undone by an older copy"

    @rule(identifier=identifiers)
    def delete(self, identifier: str) -> None:
        written = self.run(self.level.delete(self.key(identifier)))
        assert written.changed is (identifier in self.model)
        if self.model.pop(identifier, None) is not None:
            assert written.version > self.versions.get(identifier, 0)
        self.versions[identifier] = max(self.versions.get(identifier, 0), written.version)
        self.leases.pop(identifier, None)

    @rule(identifier=identifiers, stale=st.booleans())
    def delete_one_version(self, identifier: str, stale: bool) -> None:
        version = self.versions.get(identifier, 1) - stale if self.kind(identifier) == "value" else 0
        written = self.run(self.level.delete(self.key(identifier), guard="v", guarded=version))
        if identifier in self.model and not (stale and self.kind(identifier) == "value"):
            assert written is not None
            assert written.changed
            del self.model[identifier]
            self.versions[identifier] = max(self.versions.get(identifier, 0), written.version)
            self.leases.pop(identifier, None)
        else:
            assert written is None

    @rule(identifier=identifiers, by=st.sampled_from([1, -3, 0.5]), create=st.booleans())
    def increment(self, identifier: str, by: float, create: bool) -> None:
        work = self.level.increment(self.key(identifier), repr(by), pack(10), create=create)
        if self.is_refused(identifier, "value", work):
            return
        old = self.model[identifier][1] if identifier in self.model else None
        if identifier in self.model and (isinstance(old, bool) or not isinstance(old, int | float)):
            with pytest.raises(CacheError, match="CACHE_WRONG_TYPE"):
                self.run(work)
            return
        changed = self.run(work)
        if identifier not in self.model and not create:
            assert not changed.success
            return
        new = (10 if old is None else old) + by
        assert unpack(changed.new) == new
        assert type(unpack(changed.new)) is type(new)
        self.written(identifier, changed.version, new)

    @rule(identifier=identifiers, expected=values, new=values, right=st.booleans())
    def swap(self, identifier: str, expected: Any, new: Any, right: bool) -> None:
        kind, old = self.model.get(identifier, (None, None))
        wanted = pack(old) if right and kind == "value" else pack(expected)
        work = self.level.swap(self.key(identifier), wanted, pack(new))
        if self.is_refused(identifier, "value", work):
            return
        changed = self.run(work)
        assert changed.success is (kind == "value" and pack(old) == wanted)
        assert changed.old == (pack(old) if kind else None)
        if changed.success:
            self.written(identifier, changed.version, new)

    @rule(identifier=identifiers, new=values)
    def set_if_absent(self, identifier: str, new: Any) -> None:
        work = self.level.swap(self.key(identifier), None, pack(new))
        if self.is_refused(identifier, "value", work):
            return
        changed = self.run(work)
        assert changed.success is (identifier not in self.model)
        if changed.success:
            self.written(identifier, changed.version, new)

    @rule(identifier=identifiers, value=st.one_of(st.text(max_size=40), values), front=st.booleans())
    def append(self, identifier: str, value: Any, front: bool) -> None:
        work = self.level.append(self.key(identifier), pack(value), front=front, bytes_max=10**6)
        if self.is_refused(identifier, "value", work):
            return
        old = self.model[identifier][1] if identifier in self.model else ("" if isinstance(value, str) else [])
        if isinstance(old, list):
            new: Any = [value, *old] if front else [*old, value]
        elif isinstance(old, str) and isinstance(value, str):
            new = value + old if front else old + value
        else:
            with pytest.raises(CacheError, match="CACHE_WRONG_TYPE"):
                self.run(work)
            return
        changed = self.run(work)
        assert unpack(changed.new) == new
        self.written(identifier, changed.version, new)

    # --- leases ---------------------------------------------------------------------------------------------------

    @rule(identifier=identifiers)
    def lease(self, identifier: str) -> None:
        work = self.level.lease(self.key(identifier), 60_000)
        if self.is_refused(identifier, "value", work):
            return
        leased = self.run(work)
        if identifier in self.model:
            assert unpack(leased.record.entry.value) == self.model[identifier][1]
            assert not leased.lease
        else:
            assert leased.record is None
            assert bool(leased.lease) is (identifier not in self.leases), "one at a time"
            self.leases.setdefault(identifier, leased.lease)

    @rule(identifier=identifiers, value=values, stolen=st.booleans())
    def put_with_lease(self, identifier: str, value: Any, stolen: bool) -> None:
        lease = self.leases.get(identifier)
        given = "123" if lease is None or stolen else lease
        work = self.level.put(self.key(identifier), pack(value), lease=given)
        if self.is_refused(identifier, "value", work):
            return
        if given != lease:
            with pytest.raises(CacheError, match="CACHE_LEASE_LOST"):
                self.run(work)
            return
        self.written(identifier, self.run(work).version, value)

    @rule(identifier=identifiers)
    def release(self, identifier: str) -> None:
        lease = self.leases.pop(identifier, None)
        if self.kind(identifier) in (None, "value"):
            assert self.run(self.level.release(self.key(identifier), lease or "123")) is (lease is not None)

    # --- structures -----------------------------------------------------------------------------------------------

    def structure(self, identifier: str, kind: str, verb: str, **fields: Any) -> Any:
        """The result; None if another type is there, which it must say."""
        raw = {name: tuple(Raw(pack(each)) for each in fields.pop(name)) for name in ("values",) if name in fields}
        asked = StructureOperation(structure_type=kind, operation=verb, **raw, **fields)  # type: ignore[arg-type]
        work = self.structures.run(CacheKey(self.namespace, identifier), asked, Encoding.MSGPACK)
        if self.is_refused(identifier, kind, work):
            return None
        answer = self.run(work)
        return answer.result

    def held(self, identifier: str, kind: str, empty: Any) -> Any:
        return self.model[identifier][1] if self.kind(identifier) == kind else empty

    def keep(self, identifier: str, kind: str, value: Any) -> None:
        """A structure without elements is none. One that is made forgets the version of what was deleted before: only
        a copy with a version of its own could tell."""
        if value:
            if identifier not in self.model:
                self.versions[identifier] = 0
            self.model[identifier] = (kind, value)
            self.leases.pop(identifier, None)
        else:
            self.model.pop(identifier, None)

    @rule(identifier=identifiers, given=small, create=st.booleans())
    def set_add(self, identifier: str, given: list[Any], create: bool) -> None:
        options = StructureOptions(create_if_missing=create)
        result = self.structure(identifier, "set", "add", values=given, options=options)
        if result is None:
            return
        before = self.held(identifier, "set", frozenset())
        after = before | {pack(each) for each in given} if before or create else before
        assert result == {"changed": len(after - before), "size": len(after)}
        if after:
            self.keep(identifier, "set", after)

    @rule(identifier=identifiers, given=small)
    def set_remove_and_look(self, identifier: str, given: list[Any]) -> None:
        before = self.held(identifier, "set", frozenset())
        packed = [pack(each) for each in given]
        contains = self.structure(identifier, "set", "contains", values=given)
        if contains is None:
            return
        assert contains == {"values": [each in before for each in packed]}
        after = before - set(packed)
        removed = self.structure(identifier, "set", "remove", values=given)
        assert removed == {"changed": len(before - after), "size": len(after)}
        if before:
            self.keep(identifier, "set", after)

    @rule(identifier=identifiers, given=small, front=st.booleans())
    def list_add(self, identifier: str, given: list[Any], front: bool) -> None:
        result = self.structure(identifier, "list", "prepend" if front else "append", values=given)
        if result is None:
            return
        before = self.held(identifier, "list", [])
        after = given + before if front else before + given
        assert result == {"size": len(after)}
        self.keep(identifier, "list", after)

    @rule(identifier=identifiers, given=small, index=st.integers(-4, 4))
    def list_insert(self, identifier: str, given: list[Any], index: int) -> None:
        before = list(self.held(identifier, "list", []))
        at = index + len(before) if index < 0 else index
        if self.kind(identifier) in (None, "list") and not 0 <= at <= len(before):
            with pytest.raises(CacheError, match="CACHE_OUT_OF_RANGE"):
                self.structure(identifier, "list", "insert", values=given, index=index)
            return
        result = self.structure(identifier, "list", "insert", values=given, index=index)
        if result is None:
            return
        before[at:at] = given
        assert result == {"size": len(before)}
        self.keep(identifier, "list", before)

    @rule(identifier=identifiers, front=st.booleans())
    def list_pop(self, identifier: str, front: bool) -> None:
        result = self.structure(identifier, "list", "pop_front" if front else "pop_back")
        if result is None:
            return
        before = list(self.held(identifier, "list", []))
        value = before.pop(0 if front else -1) if before else None
        assert result == {"value": value, "size": len(before)}
        if self.kind(identifier) == "list":
            self.keep(identifier, "list", before)

    @rule(identifier=identifiers, start=st.integers(-5, 5), end=st.none() | st.integers(-5, 5))
    def list_range(self, identifier: str, start: int, end: int | None) -> None:
        spec = RangeSpec(start=start, end=end)
        result = self.structure(identifier, "list", "get_range", range_spec=spec)
        if result is not None:
            assert result == {"values": self.held(identifier, "list", [])[start:end]}

    @rule(identifier=identifiers, given=small, score=st.sampled_from([-1.5, 0, 3, 2**60]))
    def sorted_set_add(self, identifier: str, given: list[Any], score: float) -> None:
        scored = tuple(ScoredValue(Raw(pack(each)), score + at) for at, each in enumerate(given))
        result = self.structure(identifier, "sorted_set", "add_scored", scored_values=scored)
        if result is None:
            return
        before = self.held(identifier, "sorted_set", {})
        after = {**before, **{pack(each): float(score + at) for at, each in enumerate(given)}}
        assert result["size"] == len(after)
        self.keep(identifier, "sorted_set", after)

    @rule(identifier=identifiers, given=small)
    def sorted_set_look(self, identifier: str, given: list[Any]) -> None:
        held = self.held(identifier, "sorted_set", {})
        scores = self.structure(identifier, "sorted_set", "get_score", values=given)
        if scores is None:
            return
        assert scores == {"scores": [held.get(pack(each)) for each in given]}
        spec = RangeSpec(min_score=0, max_score=3)
        found = self.structure(identifier, "sorted_set", "get_range", range_spec=spec)["scored_values"]
        wanted = sorted((score, member) for member, score in held.items() if 0 <= score <= 3)
        assert [(each["score"], pack(each["value"])) for each in found] == wanted
        top = self.structure(identifier, "sorted_set", "get_top", limit=2)["scored_values"]
        assert [each["score"] for each in top] == sorted(held.values(), reverse=True)[:2]

    @rule(identifier=identifiers, path=paths, value=nested)
    def map_set(self, identifier: str, path: str, value: Any) -> None:
        naive = NaiveMap(self.held(identifier, "map", {}))
        updates = {path: Raw(pack(value))}
        try:
            changed = naive.set(path, value)
        except WrongType:
            if self.kind(identifier) in (None, "map"):
                with pytest.raises(CacheError, match="CACHE_WRONG_TYPE"):
                    self.structure(identifier, "map", "set_field", field_updates=updates)
            return
        result = self.structure(identifier, "map", "set_field", field_updates=updates)
        if result is None:
            return
        assert result["size"] == len(naive.whole)
        assert (result["changed"] > 0) >= changed
        self.keep(identifier, "map", naive.whole)

    @rule(identifier=identifiers, path=paths, by=st.sampled_from([1, 0.5]))
    def map_increment(self, identifier: str, path: str, by: float) -> None:
        naive = NaiveMap(self.held(identifier, "map", {}))
        updates = {path: Raw(pack(by))}
        try:
            value = naive.increment(path, by)
        except WrongType:
            if self.kind(identifier) in (None, "map"):
                with pytest.raises(CacheError, match="CACHE_WRONG_TYPE"):
                    self.structure(identifier, "map", "increment_field", field_updates=updates)
            return
        result = self.structure(identifier, "map", "increment_field", field_updates=updates)
        if result is not None:
            assert result == {"value": value}
            self.keep(identifier, "map", naive.whole)

    @rule(identifier=identifiers, path=paths)
    def map_get_and_remove(self, identifier: str, path: str) -> None:
        naive = NaiveMap(self.held(identifier, "map", {}))
        result = self.structure(identifier, "map", "get_fields", fields=(path,))
        if result is None:
            return
        assert result == {"fields": {path: naive.get(path)} if naive.has(path) else {}}
        was_there = naive.remove(path)
        removed = self.structure(identifier, "map", "remove_fields", fields=(path,))
        assert removed == {"changed": int(was_there), "size": len(naive.whole)}
        if self.kind(identifier) == "map":
            self.keep(identifier, "map", naive.whole)

    # --- always ---------------------------------------------------------------------------------------------------

    @invariant()
    def everything_is_as_the_model_says(self) -> None:
        if not hasattr(self, "runner"):
            return
        for identifier in ("a", "b", "c"):
            kind, value = self.model.get(identifier, (None, None))
            found: Any = None
            match kind:
                case None | "value":
                    record = self.run(self.level.get(self.key(identifier)))
                    assert (record is None) is (kind is None)
                    if record is not None:
                        assert record.entry.value == pack(value)
                        assert record.entry.version == self.versions[identifier]
                case "set":
                    found = self.structure(identifier, "set", "members")["values"]
                    assert {pack(each) for each in found} == value
                case "list":
                    assert self.structure(identifier, "list", "get_range") == {"values": value}
                case "sorted_set":
                    found = self.structure(identifier, "sorted_set", "get_bottom", limit=100)["scored_values"]
                    assert {pack(each["value"]): float(each["score"]) for each in found} == value
                case "map":
                    keys = self.structure(identifier, "map", "keys")["values"]
                    all_values = self.structure(identifier, "map", "values")["values"]
                    assert dict(zip(keys, all_values, strict=True)) == value


@pytest.fixture
def machine(store_servers: StoreServers) -> type[Machine]:
    class Here(Machine):
        url = store_servers.url

    return Here


def run_machine(machine: type[Machine], examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


def test_the_scripts_do_what_the_model_says(machine: type[Machine]) -> None:
    run_machine(machine, 60, 40)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_scripts_do_what_the_model_says_for_long(machine: type[Machine]) -> None:
    run_machine(machine, 800, 80)
