"""What a node keeps on its disk: there again after a restart, within its bounds, and never a damaged value."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cache.entries import entry, key

from mpreg.cache import disk, disk_file
from mpreg.cache.bounds import Bounds
from mpreg.cache.disk import DiskLevel
from mpreg.cache.disk_file import FORMAT, DiskFile
from mpreg.cache.disk_record import decode_record, encode_record
from mpreg.cache.entry import Entry
from mpreg.cache.tier import Evicted
from mpreg.errors import ConfigError

pytestmark = pytest.mark.anyio

Told = list[tuple[bytes, Evicted]]


@pytest.fixture
def told() -> Told:
    return []


@pytest.fixture
async def level(tmp_path: Path, told: Told) -> AsyncIterator[DiskLevel]:
    opened = await open_level(tmp_path, told)
    yield opened
    await opened.close()


async def open_level(path: Path, told: Told, entries_max: int = 100, bytes_max: int = 10_000) -> DiskLevel:
    return await DiskLevel.open(
        path, entries_max=entries_max, bytes_max=bytes_max, on_evicted=lambda key, why: told.append((key, why))
    )


def full(value: bytes = b"v", **fields: object) -> Entry:
    return entry(
        **{
            "value": value,
            "version": 7,
            "created_ms": 5,
            "expires_ms": 900,
            "fresh_until_ms": 800,
            "cost_ms": 1.5,
            "tags": ("t", "ü"),
            "dependencies": ("n:d",),
            **fields,
        }
    )


# The record.

ENTRIES = st.builds(
    Entry,
    value=st.binary(max_size=50),
    version=st.integers(0, 2**53),
    created_ms=st.integers(0, 2**53),
    expires_ms=st.integers(0, 2**53),
    fresh_until_ms=st.integers(0, 2**53),
    cost_ms=st.floats(0, 1e12),
    tags=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    dependencies=st.lists(st.text(max_size=5), max_size=3).map(tuple),
)


@given(st.binary(max_size=30), ENTRIES)
def test_a_record_is_read_back_as_it_was(name: bytes, what: Entry) -> None:
    assert decode_record(encode_record(name, what)) == (name, what)


@given(st.binary(max_size=30), ENTRIES, st.data())
def test_a_record_that_was_changed_is_told_from_a_whole_one(name: bytes, what: Entry, data: st.DataObject) -> None:
    record = bytearray(encode_record(name, what))
    at = data.draw(st.integers(0, len(record) - 1))
    record[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ValueError):
        decode_record(bytes(record))
    with pytest.raises(ValueError):
        decode_record(bytes(encode_record(name, what)[:at]))


# The level.


async def test_what_was_put_is_found_again(level: DiskLevel) -> None:
    await level.put(key("a"), full())
    assert await level.get(key("a"), 10) == full()
    await level.put(key("a"), full(b"newer"))
    assert await level.get(key("a"), 10) == full(b"newer")
    assert await level.keys() == [key("a")]
    assert await level.size() == (1, 5)
    assert await level.remove(key("a"))
    assert not await level.remove(key("a"))
    assert await level.get(key("a"), 10) is None
    assert await level.size() == (0, 0)


async def test_a_key_of_any_length_is_kept(level: DiskLevel) -> None:
    long = key("x" * 1024)
    await level.put(long, full())
    assert await level.get(long, 0) == full()
    assert await level.keys() == [long]


async def test_an_entry_is_not_served_once_its_time_is_over(level: DiskLevel, told: Told) -> None:
    await level.put(key("a"), full())
    assert await level.get(key("a"), 900) is None
    assert told == [(key("a"), "expired")]
    assert await level.size() == (0, 0)


async def test_an_entry_that_alone_is_too_large_is_not_kept_nor_what_it_replaces(level: DiskLevel, told: Told) -> None:
    await level.put(key("a"), full())
    await level.put(key("a"), full(b"x" * 10_001))
    assert await level.get(key("a"), 0) is None
    assert told == [(key("a"), "too_large")]


async def test_the_oldest_goes_first_unless_it_was_used_since(tmp_path: Path, told: Told) -> None:
    level = await open_level(tmp_path, told, entries_max=3)
    for name in "abc":
        await level.put(key(name), full())
    await level.get(key("a"), 0)
    await level.put(key("d"), full())
    await level.put(key("e"), full())
    assert told == [(key("b"), "capacity"), (key("c"), "capacity")]
    assert sorted(await level.keys()) == [key("a"), key("d"), key("e")]
    await level.close()


async def test_what_was_there_is_there_after_a_restart_and_so_are_the_bounds(tmp_path: Path, told: Told) -> None:
    level = await open_level(tmp_path, told)
    for n in range(10):
        await level.put(key(n), full(b"%d" % n))
    await level.close()
    level = await open_level(tmp_path, told, entries_max=10)
    assert await level.size() == (10, 10)
    assert await level.get(key(3), 0) == full(b"3")
    await level.put(key(10), full())
    assert told == [(key(0), "capacity")]
    await level.close()


async def test_a_cleared_level_is_empty_and_goes_on(level: DiskLevel) -> None:
    await level.put(key("a"), full())
    await level.clear()
    assert await level.size() == (0, 0)
    await level.put(key("b"), full())
    assert await level.keys() == [key("b")]


async def test_many_at_once_are_each_answered_with_their_own(level: DiskLevel) -> None:
    await asyncio.gather(*(level.put(key(n), full(b"%d" % n)) for n in range(90)))
    found = await asyncio.gather(*(level.get(key(n), 0) for n in range(90)))
    assert [each.value if each else None for each in found] == [b"%d" % n for n in range(90)]


async def test_a_caller_that_is_cancelled_disturbs_nobody(level: DiskLevel) -> None:
    puts = [asyncio.create_task(level.put(key(n), full(b"%d" % n))) for n in range(20)]
    await asyncio.sleep(0)
    for put in puts[::2]:
        put.cancel()
    await asyncio.wait(puts)
    assert await level.get(key(1), 0) == full(b"1")


async def test_when_too_many_wait_a_put_is_not_done_and_leaves_no_older_value(
    level: DiskLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    await level.put(key("a"), full(b"old"))
    monkeypatch.setattr(disk, "WAITING_MAX", 0)
    await level.put(key("a"), full(b"new"))
    monkeypatch.undo()
    assert await level.get(key("a"), 0) is None
    assert level.dropped == 1


async def test_two_nodes_never_share_a_directory(level: DiskLevel, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Another node keeps its cache in") as refused:
        await open_level(tmp_path, [])
    assert refused.value.code == "CONFIG_INVALID"


async def test_a_directory_that_can_t_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="can't keep anything in"):
        await open_level(tmp_path / "file" / "cache", [])


# What a disk can do to it.


async def test_a_full_disk_empties_the_level_and_the_node_goes_on(
    level: DiskLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    await level.put(key("a"), full(b"old"))
    assert level._file is not None
    monkeypatch.setattr(disk_file, "encode_record", raising(OSError(28, "No space left on device")))
    await level.put(key("a"), full(b"new"))
    monkeypatch.undo()
    assert await level.get(key("a"), 0) is None
    assert level.problems == 1
    await level.put(key("b"), full())
    assert await level.get(key("b"), 0) == full()


async def test_a_map_that_is_full_empties_the_level_and_the_node_goes_on(
    tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real MapFullError of lmdb: the file may not grow as large as the bounds allow."""
    monkeypatch.setattr(disk_file, "SPARE_BYTES", 40_000 - 2 * 10_000 - 100 * disk_file.ENTRY_OVERHEAD_BYTES + 100_000)
    level = await open_level(tmp_path, told)
    monkeypatch.setattr(level._file, "_bounds", Bounds(10**6, 10**9))
    for n in range(300):
        await level.put(key(n), full(b"x" * 2_000))
        assert await level.get(key(n), 0) in (None, full(b"x" * 2_000))
    assert level.problems >= 1
    await level.put(key("last"), full())
    assert await level.get(key("last"), 0) == full()
    await level.close()


async def test_a_disk_that_can_t_be_written_at_all_leaves_an_empty_level(
    level: DiskLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    await level.put(key("a"), full())
    monkeypatch.setattr(disk_file, "encode_record", raising(OSError(5, "Input/output error")))
    monkeypatch.setattr(DiskFile, "_open_file", raising(OSError(5, "Input/output error")))
    await level.put(key("b"), full())
    assert await level.get(key("a"), 0) is None
    assert not await level.remove(key("a"))
    assert await level.keys() == []


def raising(problem: Exception) -> Callable[..., object]:
    def fail(*_: object) -> object:
        raise problem

    return fail


async def test_a_damaged_value_is_dropped_and_told_never_served(tmp_path: Path, told: Told) -> None:
    level = await open_level(tmp_path, told)
    for n in range(20):
        await level.put(key(n), full(b"%02d" % n * 100))
    await level.close()
    file = tmp_path / FORMAT / "data.mdb"
    data = file.read_bytes()
    file.write_bytes(data.replace(b"07" * 100, b"xx" + b"07" * 99))  # lmdb leaves older copies of a page about
    level = await open_level(tmp_path, told)
    assert await level.get(key(7), 0) is None
    assert told == [(key(7), "corrupt")]
    assert await level.get(key(8), 0) == full(b"08" * 100)
    assert (await level.size())[0] == 19
    await level.close()


@pytest.mark.parametrize("damage", ["cut", "noise", "empty"])
async def test_a_file_that_is_no_longer_one_begins_anew(tmp_path: Path, told: Told, damage: str) -> None:
    level = await open_level(tmp_path, told)
    for n in range(20):
        await level.put(key(n), full(b"x" * 400))
    await level.close()
    file = tmp_path / FORMAT / "data.mdb"
    data = file.read_bytes()
    file.write_bytes({"cut": data[: len(data) // 2], "noise": random.Random(1).randbytes(50_000), "empty": b""}[damage])
    level = await open_level(tmp_path, told)
    assert await level.get(key(1), 0) is None
    await level.put(key("b"), full())
    assert await level.get(key("b"), 0) == full()
    await level.close()


async def test_a_machine_that_crashed_leaves_nothing_that_is_served(
    tmp_path: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot = tmp_path / "boot_id"
    boot.write_text("before")
    monkeypatch.setattr(disk_file, "BOOT_ID", boot)
    level = await open_level(tmp_path / "cache", told)
    await level.put(key("a"), full())
    marker = (tmp_path / "cache" / FORMAT / "open").read_text()
    await level.close()
    (tmp_path / "cache" / FORMAT / "open").write_text(marker)  # as it was when the power went
    boot.write_text("after")
    level = await open_level(tmp_path / "cache", told)
    assert await level.get(key("a"), 0) is None
    await level.close()


KILLED = """
import os, pathlib, signal, sys
from mpreg.cache.bounds import Bounds
from mpreg.cache.disk_file import DiskFile
from mpreg.cache.entry import Entry

file = DiskFile(pathlib.Path(sys.argv[1]), Bounds(1000, 10**6))
for n in range(500):
    file.put(b"k%d" % n, Entry(value=b"v%d" % n, version=n, created_ms=0))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_node_that_was_killed_finds_what_it_kept(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=60)
    assert done.returncode == -signal.SIGKILL
    file = DiskFile(tmp_path, Bounds(1000, 10**6))
    assert [file.get(b"k%d" % n, 0) for n in range(500)] == [
        Entry(value=b"v%d" % n, version=n, created_ms=0) for n in range(500)
    ]
    file.close()


def test_a_file_that_kills_its_node_again_and_again_is_thrown_away(tmp_path: Path) -> None:
    for _ in range(disk_file.KILLS_MAX):
        killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=60)
        assert killed.returncode == -signal.SIGKILL
    file = DiskFile(tmp_path, Bounds(1000, 10**6))
    assert file.keys() == []
    file.close()


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "get", "remove", "reopen"]), st.integers(0, 8), st.integers(0, 40)), max_size=40
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(STEPS)
def test_it_agrees_with_a_dict_but_for_what_it_says_it_gave_up(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    path, bounds = tmp_path_factory.mktemp("l2"), Bounds(5, 100)
    file = DiskFile(path, bounds)
    held: dict[bytes, bytes] = {}
    for at, (what, name, size) in enumerate(steps):
        each, value = key(name), b"%d" % at + b"x" * size
        if what == "put":
            file.put(each, entry(value=value))
            held[each] = value
        elif what == "get":
            found = file.get(each, 0)
            assert (found.value if found else None) == held.get(each)
        elif what == "remove":
            assert file.remove(each) == (held.pop(each, None) is not None)
        else:
            file.close()
            file = DiskFile(path, bounds)
        for gone, why in file.gone:
            assert why == "capacity"
            del held[gone]
        file.gone.clear()
        assert sorted(file.keys()) == sorted(held)
        assert file.bytes == sum(map(len, held.values())) <= bounds.bytes_max
        assert len(file) == len(held) <= bounds.entries_max
    file.close()
