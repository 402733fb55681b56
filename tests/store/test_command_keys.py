"""Positions of keys in commands, against what a real server says of every command that it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.store.servers import Server, valkey

from mpreg.errors import StoreError
from mpreg.store import command_keys
from mpreg.store.command_keys import FIRST_ONLY, NO_KEYS, Range, keys_of, pick, positions, upper


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with valkey() as made:
        yield made


def every_command(server: Server) -> dict[str, Any]:
    return {info[0].decode().upper(): info for info in server.call("COMMAND")}


def test_the_tables_agree_with_the_server_on_every_command_whose_keys_do_not_move(server: Server) -> None:
    checked = 0
    for name, info in every_command(server).items():
        known = command_keys._WHERE.get(name)
        where = positions(info)
        if known is None or where is None:
            continue
        assert known == where, name
        checked += 1
    assert checked > 150


def test_commands_of_one_key_are_just_those(server: Server) -> None:
    infos = every_command(server)
    for name in {upper(spelling) for spelling in FIRST_ONLY} & infos.keys():
        assert positions(infos[name]) == Range(1, 1), name


@pytest.mark.parametrize(
    "command",
    [
        "GET k",
        "MSET a 1 b 2 c 3",
        "DEL a b c",
        "RENAME a b",
        "BLPOP a b c 0",
        "EVAL script 2 a b c",
        "EVALSHA sha 1 a",
        "FCALL f 2 a b",
        "BLMPOP 0 2 a b LEFT",
        "LMPOP 2 a b LEFT",
        "ZUNION 2 a b",
        "ZUNIONSTORE dest 2 a b WEIGHTS 1 2",
        "ZDIFFSTORE dest 1 a",
        "ZINTERCARD 2 a b LIMIT 3",
        "BZMPOP 0 1 a MIN",
        "MSETEX 2 a 1 b 2 EX 10",
        "BITOP AND dest a b",
        "XREAD COUNT 2 STREAMS a b 0 0",
        "XREADGROUP GROUP g c STREAMS a >",
        "SORT a STORE b",
        "SORT a BY nosort",
        "SORT_RO a",
        "GEORADIUS a 0 0 1 km STORE b",
        "GEORADIUSBYMEMBER a m 1 km STOREDIST b",
        "GEORADIUS_RO a 0 0 1 km",
        "OBJECT ENCODING a",
        "MEMORY USAGE a",
        "XGROUP CREATE a g $",
        "XINFO STREAM a",
        "PFCOUNT a b",
        "COPY a b",
        "SMOVE a b m",
    ],
)
def test_the_keys_that_are_found_are_those_that_the_server_finds(server: Server, command: str) -> None:
    args = command.split()
    expected = [key.decode() for key in server.call("COMMAND", "GETKEYS", *args)]
    found = keys_of(args, {})
    assert found is not None
    assert sorted(map(str, found)) == sorted(expected)
    assert keys_of([arg.encode() for arg in args], {}) == [str(key).encode() for key in found]


@pytest.mark.parametrize(
    "args",
    [
        ["EVAL", "s"],
        ["EVAL", "s", "many"],
        ["EVAL", "s", -3, "a"],
        ["MGET"],
        ["EVAL", "s", 0, "a"],
        ["XREAD", "COUNT", 1],
        ["OBJECT"],
    ],
)
def test_a_command_that_is_wrong_has_no_keys_so_that_the_server_can_say_so(args: list[str | int]) -> None:
    assert keys_of(args, {}) == []


def test_unknown_commands_are_learned() -> None:
    assert keys_of(["FROBNICATE", "a", "b"], {}) is None
    assert keys_of(["frobnicate", "a", "b"], {"FROBNICATE": Range(2, 2)}) == ["b"]
    assert positions(None) == NO_KEYS
    assert pick(["X", "a"], NO_KEYS) == []


@pytest.mark.parametrize("name", ["scan", b"KEYS", "FlushAll"])
def test_what_concerns_one_server_is_refused(name: str | bytes) -> None:
    with pytest.raises(StoreError) as refused:
        keys_of([name, "*"], {})
    assert refused.value.code == "STORE_INVALID_COMMAND"
