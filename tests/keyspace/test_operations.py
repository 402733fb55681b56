"""What the handles of declared keys do in a real store: values by their codec, the declared TTL with every write."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from mpreg.errors import KeyspaceError, StoreError
from mpreg.keyspace import Keyspace, Ttl, exists, integer, json, remaining_s, remove, renew, text
from mpreg.keyspace.writing import ARGUMENTS_MAX
from mpreg.store import Store

pytestmark = pytest.mark.anyio


class Person(msgspec.Struct, kw_only=True):
    name: str
    age: int = 0
    city: str | None = None
    tags: list[str] | None = None


class Reading(msgspec.Struct):
    value: float


demo = Keyspace("demo", prefix="demo:")
NOTE = demo.string("note:{id}", json(dict[str, int]), ttl=Ttl(seconds=100, max_seconds=1000))
PLAIN = demo.string("plain:{id:bytes}", text)
TODAY = demo.string("today", text, ttl=Ttl(until="midnight"))
WINDOW = demo.counter("window:{id}", ttl=Ttl(seconds=100, renew="create"))
TOTAL = demo.counter("total")
PERSON = demo.hash("person:{id:int}", Person, ttl=100)
CITIZEN = demo.hash("citizen:{id:int}", Person, ttl=Ttl(seconds=100, max_seconds=1000, renew="create"))
STAFF = demo.hash("staff:{id:int}", Person)
TALLY = demo.free_hash("tally", integer, ttl=100)
TEAM = demo.set("team", integer, ttl=100)
QUEUE = demo.list("queue", text, ttl=100)
BOARD = demo.zset("board", text, ttl=100)
READINGS = demo.stream("readings", Reading, entries_max=10, ttl=100)


async def test_a_string_is_written_with_its_ttl_and_read_back(store: Store) -> None:
    note = NOTE.at(id="a b\n")
    assert await note.get(store) is None
    assert await note.set(store, {"n": 1})
    assert await note.get(store) == {"n": 1}
    left = await remaining_s(store, note)
    assert left is not None
    assert 90 < left <= 100
    assert await store.command("GET", b"demo:note:a b\n") == b'{"n":1}'


async def test_a_caller_s_own_ttl_is_used_up_to_the_declared_limit(store: Store) -> None:
    note = NOTE.at(id="a")
    await note.set(store, {}, ttl_s=900)
    left = await remaining_s(store, note)
    assert left is not None
    assert 890 < left <= 900
    with pytest.raises(KeyspaceError, match="KEYSPACE_INVALID_TTL"):
        await note.set(store, {"x": 1}, ttl_s=1001)
    assert await note.get(store) == {}, "what is refused changes nothing"


async def test_a_string_without_a_declared_ttl_takes_none(store: Store) -> None:
    plain = PLAIN.at(id=b"\xff\x00")
    await plain.set(store, "x")
    assert await remaining_s(store, plain) is None
    with pytest.raises(KeyspaceError, match="KEYSPACE_INVALID_TTL"):
        await plain.set(store, "y", ttl_s=5)


async def test_conditions_of_a_write(store: Store) -> None:
    note = NOTE.at(id="a")
    assert not await note.set(store, {"n": 1}, only_if="present")
    assert await note.set(store, {"n": 2}, only_if="absent")
    assert not await note.set(store, {"n": 3}, only_if="absent")
    assert await note.get(store) == {"n": 2}
    await store.command("PEXPIRE", note.name, 5_000_000)
    assert await note.set(store, {"n": 4}, keep_ttl=True, only_if="present")
    assert await store.command("PTTL", note.name) > 4_000_000
    with pytest.raises(KeyspaceError, match="KEYSPACE_INVALID_TTL"):
        await note.set(store, {"n": 5}, keep_ttl=True)


async def test_take_returns_the_value_and_removes_the_key(store: Store) -> None:
    note = NOTE.at(id="a")
    await note.set(store, {"n": 1})
    assert await note.take(store) == {"n": 1}
    assert await note.take(store) is None


async def test_a_key_until_midnight_ends_within_a_day(store: Store) -> None:
    today = TODAY.at()
    await today.set(store, "x")
    left = await remaining_s(store, today)
    assert left is not None
    assert 0 < left <= 25 * 3600


async def test_a_counter_counts_and_its_window_ends_when_it_ends(store: Store) -> None:
    window = WINDOW.at(id="w")
    assert await window.get(store) == 0
    assert await asyncio.gather(*(window.add(store) for _ in range(50))) == list(range(1, 51))
    await store.command("PEXPIRE", window.name, 50_000)
    assert await window.add(store, -7) == 43
    assert await store.command("PTTL", window.name) <= 50_000, "a later write does not lengthen the window"
    await store.command("PERSIST", window.name)
    await window.add(store)
    assert await store.command("PTTL", window.name) > 0, "but a key that has no end gets one"


async def test_a_counter_without_ttl_stays(store: Store) -> None:
    assert await TOTAL.at().add(store, 5) == 5
    assert await store.command("PTTL", TOTAL.key()) == -1
    with pytest.raises(KeyspaceError, match="KEYSPACE_UNENCODABLE"):
        await TOTAL.at().add(store, 0.5)  # type: ignore[arg-type]  # on purpose


async def test_put_replaces_all_fields_of_a_hash(store: Store) -> None:
    person = PERSON.at(id=1)
    assert await person.get(store) is None
    await person.put(store, Person(name="Ann", age=3, city="Bonn", tags=["x"]))
    await store.command("HSET", person.name, "other", "by another program")
    assert await person.get(store) == Person(name="Ann", age=3, city="Bonn", tags=["x"])
    await person.put(store, Person(name="Bob"))
    assert await store.command("HGETALL", person.name) == {b"name": b"Bob", b"age": b"0"}
    assert 90_000 < await store.command("PTTL", person.name) <= 100_000


async def test_change_writes_some_fields_and_none_removes_one(store: Store) -> None:
    staff = STAFF.at(id=1)
    await staff.put(store, Person(name="Ann", city="Bonn"))
    await staff.change(store, age=4, city=None)
    assert await staff.get(store) == Person(name="Ann", age=4)
    assert await staff.field(store, "age") == 4
    assert await staff.field(store, "city") is None
    assert await staff.add(store, "age", 2) == 6
    assert await store.command("PTTL", staff.name) == -1
    for wrong in ({}, {"age": "x"}, {"nothing": 1}, {"name": None}):
        with pytest.raises(KeyspaceError):
            await staff.change(store, **wrong)
    with pytest.raises(KeyspaceError):
        await staff.add(store, "name", 2)
    assert await staff.get(store) == Person(name="Ann", age=6)


async def test_a_hash_whose_life_began_with_it_keeps_its_end_when_it_is_replaced(store: Store) -> None:
    citizen = CITIZEN.at(id=1)
    await citizen.put(store, Person(name="Ann"))
    await store.command("PEXPIRE", citizen.name, 50_000)
    await citizen.put(store, Person(name="Bob"))
    await citizen.change(store, age=1)
    assert 0 < await store.command("PTTL", citizen.name) <= 50_000
    await citizen.put(store, Person(name="Eve"), ttl_s=900)
    assert await store.command("PTTL", citizen.name) > 800_000


async def test_what_does_not_fit_is_not_written_and_what_is_stored_wrong_names_the_key(store: Store) -> None:
    person = PERSON.at(id=1)
    with pytest.raises(KeyspaceError, match="KEYSPACE_UNENCODABLE"):
        await person.put(store, Person(name=5))  # type: ignore[arg-type]  # on purpose
    assert not await exists(store, person)
    await store.command("HSET", person.name, "name", "Ann", "age", "old")
    with pytest.raises(KeyspaceError) as caught:
        await person.get(store)
    assert caught.value.code == "KEYSPACE_UNDECODABLE"
    assert caught.value.details["key"] == "demo:person:1"
    assert caught.value.details["field"] == "age"


async def test_a_key_of_another_type_is_said_so(store: Store) -> None:
    await store.command("SET", PERSON.key(id=1), "x")
    person = PERSON.at(id=1)
    for call in (person.get(store), person.change(store, age=1), person.put(store, Person(name="Ann"))):
        with pytest.raises(StoreError, match="WRONGTYPE") as wrong:
            await call
        assert wrong.value.code == "STORE_WRONG_TYPE"
    assert await store.command("GET", person.name) == b"x"


async def test_a_hash_with_free_fields(store: Store) -> None:
    tally = TALLY.at()
    assert await tally.set(store, {"ü": 1, "b": 2}) == 2
    assert await tally.add(store, "b", 40) == 42
    assert await tally.get(store) == {"ü": 1, "b": 42}
    assert await tally.field(store, "b") == 42
    assert await tally.remove(store, "b", "c") == 1
    assert 90_000 < await store.command("PTTL", tally.name) <= 100_000
    await tally.set(store, {"c": 1})
    with pytest.raises(KeyspaceError, match="KEYSPACE_TOO_LARGE"):
        await tally.get(store, limit=1)


async def test_a_set(store: Store) -> None:
    team = TEAM.at()
    assert await team.add(store, 1, 2, 3) == 3
    assert await team.add(store, 3, 4) == 1
    assert await team.remove(store, 1, 9) == 1
    assert (await team.contains(store, 2), await team.contains(store, 1)) == (True, False)
    assert await team.members(store) == {2, 3, 4}
    assert {one async for page in team.pages(store) for one in page} == {2, 3, 4}
    assert await team.size(store) == 3
    with pytest.raises(KeyspaceError, match="KEYSPACE_TOO_LARGE"):
        await team.members(store, limit=2)
    with pytest.raises(KeyspaceError, match="KEYSPACE_INVALID_VALUE"):
        await team.add(store)
    with pytest.raises(KeyspaceError, match="KEYSPACE_UNENCODABLE"):
        await team.add(store, 7, "8")  # type: ignore[arg-type]  # on purpose
    assert await team.size(store) == 3


async def test_one_write_takes_so_many_and_no_more(store: Store) -> None:
    team = TEAM.at()
    assert await team.add(store, *range(ARGUMENTS_MAX)) == ARGUMENTS_MAX
    with pytest.raises(KeyspaceError) as caught:
        await team.add(store, *range(ARGUMENTS_MAX + 1))
    assert (caught.value.code, caught.value.details["limit"]) == ("KEYSPACE_TOO_LARGE", ARGUMENTS_MAX)


async def test_a_list_is_a_queue(store: Store) -> None:
    queue = QUEUE.at()
    assert await queue.append(store, "a", "b") == 2
    assert await queue.prepend(store, "z") == 3
    assert await queue.part(store) == ["z", "a", "b"]
    assert await queue.part(store, 1, 2) == ["a"]
    assert await queue.part(store, 2, 2) == []
    assert await queue.take_first(store) == "z"
    assert await queue.take_last(store) == "b"
    assert await queue.size(store) == 1
    assert await store.command("PTTL", queue.name) > 0
    assert await queue.take_first(store) == "a"
    assert await queue.take_first(store) is None
    with pytest.raises(KeyspaceError, match="KEYSPACE_TOO_LARGE"):
        await queue.part(store, 0, 1_000_000)


async def test_a_sorted_set(store: Store) -> None:
    board = BOARD.at()
    assert await board.add(store, {"a": 1, "b": 2.5, "c": -3}) == 3
    assert await board.add_score(store, "a", 10) == 11
    assert await board.score(store, "b") == 2.5
    assert await board.score(store, "x") is None
    assert await board.lowest(store, 2) == [("c", -3.0), ("b", 2.5)]
    assert await board.highest(store, 1) == [("a", 11.0)]
    assert await board.between(store, 0, float("inf"), count=10) == [("b", 2.5), ("a", 11.0)]
    assert await board.remove(store, "a", "x") == 1
    assert await board.size(store) == 2
    for wrong in (float("nan"), float("inf"), "1", True):
        with pytest.raises(KeyspaceError, match="KEYSPACE_UNENCODABLE"):
            await board.add(store, {"a": wrong})  # type: ignore[dict-item]  # on purpose


async def test_a_stream_is_read_from_where_one_was_and_cut(store: Store) -> None:
    readings = READINGS.at()
    ids = [await readings.append(store, Reading(n / 2)) for n in range(3)]
    assert [entry for _, entry in await readings.after(store)] == [Reading(0.0), Reading(0.5), Reading(1.0)]
    assert await readings.after(store, ids[1]) == [(ids[2], Reading(1.0))]
    assert await readings.latest(store) == [(ids[2], Reading(1.0))]
    assert 90_000 < await store.command("PTTL", readings.name) <= 100_000
    for number in range(1_000):
        await readings.append(store, Reading(number))
    assert await readings.size(store) < 300, "it is cut in whole nodes of about a hundred entries"
    with pytest.raises(KeyspaceError, match="KEYSPACE_INVALID_VALUE"):
        await readings.after(store, "0 COUNT 5")


async def test_what_all_keys_can_do(store: Store) -> None:
    team: Any = TEAM.at()
    assert not await exists(store, team)
    assert not await renew(store, team)
    await team.add(store, 1)
    await store.command("PEXPIRE", team.name, 5_000)
    assert await renew(store, team)
    assert await store.command("PTTL", team.name) > 90_000
    assert await remove(store, team)
    assert not await remove(store, team)
    assert await remaining_s(store, team) is None


async def test_messages_of_a_declared_channel(store: Store) -> None:
    channel = Keyspace("other").channel("events:{kind}", json(dict[str, int]))
    async with store.subscribe(patterns=[channel.glob()]) as subscription:
        await channel.publish(store, {"n": 1}, kind="a")
        async for message in subscription:
            assert channel.parse(message.channel) == {"kind": "a"}
            assert channel.decode(message.data) == {"n": 1}
            break
