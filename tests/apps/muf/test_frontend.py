"""The asking side, with raw commands on the other."""

from __future__ import annotations

import asyncio
import math

import pytest
from tests.apps.muf.conftest import Units
from tests.apps.muf.peer import all_keys, err, raw_backend, res, until_set
from tests.store.servers import StoreServers

from mpreg.apps.muf import MufConnectionLost, MufIdInUse, MufRemoteError, MufTimeout, Unit
from mpreg.errors import StoreError
from mpreg.store import Store, StoreLimits, connect

pytestmark = pytest.mark.anyio


async def test_a_request_is_a_plain_key_with_the_ttl_of_the_note_and_nothing_else_is_left(
    unit: Units, store: Store
) -> None:
    frontend = await unit("FRONTEND")
    asking = asyncio.create_task(frontend.request(b"\x00data\xff", id="1"))
    assert await until_set(store, "MUF/FRONTEND/REQ/1") == b"\x00data\xff"
    assert 9 <= await store.command("TTL", "MUF/FRONTEND/REQ/1") <= 10
    assert await all_keys(store) == {b"MUF/FRONTEND/REQ/1"}
    await store.command("SET", "MUF/FRONTEND/RES/1", b"answer\x00", "EX", 30)
    assert await asking == b"answer\x00"
    assert await all_keys(store) == {b"MUF/FRONTEND/REQ/1", b"MUF/FRONTEND/RES/1"}, "nothing is deleted (R-M8)"


async def test_err_is_an_exception_that_carries_the_bytes(unit: Units, store: Store) -> None:
    frontend = await unit("FE")
    async with raw_backend(store, lambda key, value: [err(key, b"\xfe broken: " + value)]):
        with pytest.raises(MufRemoteError) as failed:
            await frontend.request("x")
    assert failed.value.payload == b"\xfe broken: x"
    assert failed.value.code == "MUF_REMOTE"


async def test_an_empty_answer_is_an_answer(unit: Units, store: Store) -> None:
    frontend = await unit("FE")
    async with raw_backend(store, lambda key, value: [res(key, b"")]):
        assert await frontend.request(b"") == b""


async def test_many_calls_at_once_each_get_their_own_answer(unit: Units, store: Store) -> None:
    frontend = await unit("FE")
    async with raw_backend(store, lambda key, value: [res(key, b"of " + value)]):
        answers = await asyncio.gather(*(frontend.request(f"{n}") for n in range(500)))
    assert answers == [b"of %d" % n for n in range(500)]


async def test_a_thousand_calls_one_after_another_all_are_answered(unit: Units, store: Store) -> None:
    frontend = await unit("FE")
    async with raw_backend(store, lambda key, value: [res(key, value)]):
        for n in range(1000):
            assert await frontend.request(b"%d" % n) == b"%d" % n


async def test_no_answer_is_a_timeout_and_the_request_stays_for_its_ttl(unit: Units, store: Store) -> None:
    frontend = await unit("FE")
    with pytest.raises(MufTimeout) as timed_out:
        await frontend.request(b"x", id="lonely", timeout=0.05)
    assert timed_out.value.code == "MUF_TIMEOUT"
    assert timed_out.value.details["id"] == "lonely"
    assert await store.command("EXISTS", "MUF/FE/REQ/lonely") == 1


async def test_where_both_answers_are_there_res_wins(unit: Units, store: Store) -> None:
    frontend = await unit("FE")

    def both(key: bytes, value: bytes) -> list[tuple[bytes, ...]]:
        return [(b"SET", key.replace(b"/REQ/", b"/RES/"), b"good", b"EX", b"30"), err(key, b"bad")]

    async with raw_backend(store, both):
        assert [await frontend.request(b"x") for _ in range(20)] == [b"good"] * 20


async def test_a_second_answer_changes_nothing(unit: Units, store: Store) -> None:
    frontend = await unit("FE")
    async with raw_backend(store, lambda key, value: [res(key, value), res(key, value)]):
        assert [await frontend.request(b"%d" % n) for n in range(20)] == [b"%d" % n for n in range(20)]


async def test_an_id_is_used_once(unit: Units, store: Store) -> None:
    frontend = await unit("FE")
    await frontend.send(b"one", id="same")
    with pytest.raises(MufIdInUse):
        await frontend.send(b"two", id="same")
    assert await store.command("GET", "MUF/FE/REQ/same") == b"one"
    await store.command("SET", "MUF/FE/RES/old", b"", "EX", 30)
    with pytest.raises(MufIdInUse):
        await frontend.request(b"new", id="old")
    assert await store.command("EXISTS", "MUF/FE/REQ/old") == 0


async def test_the_answer_to_a_sent_request_can_be_read_by_anyone(unit: Units, store: Store) -> None:
    frontend = await unit("FE")
    async with raw_backend(store, lambda key, value: [res(key, b"done")]):
        id = await frontend.send(b"x", target="CONVERT")
        assert id.startswith("CONVERT.")
        assert await until_set(store, f"MUF/FE/RES/{id}") == b"done"


async def test_ttl_and_timeout_can_be_said_in_each_call(unit: Units, store: Store) -> None:
    frontend = await unit("FE")
    await frontend.send(b"x", id="long", ttl=100)
    await frontend.send(b"x", id="short", ttl=1.5)
    assert 99 <= await store.command("TTL", "MUF/FE/REQ/long") <= 100
    assert 1000 < await store.command("PTTL", "MUF/FE/REQ/short") <= 1500


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, True, "10", None])
async def test_bad_input_is_refused_before_any_command(unit: Units, store: Store, bad: object) -> None:
    frontend = await unit("FE")
    for arguments in ({"id": "a/b"}, {"id": ""}, {"id": "x" * 600}, {"target": "a b"}, {"id": "a", "target": "b"}):
        with pytest.raises(ValueError):
            await frontend.request(b"x", **arguments)
    if bad is not None:
        with pytest.raises(ValueError, match="ttl"):
            await frontend.request(b"x", ttl=bad)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="timeout"):
            await frontend.request(b"x", timeout=bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="data"):
        await frontend.request(object())
    assert await all_keys(store) == set()
    assert len(frontend._frontend) == 0


@pytest.mark.parametrize("name", ["a[1]", "*", "a?b", "漢字ユニット", "back\\slash", "{tag}"])
async def test_units_of_any_printable_name_get_their_answers_and_no_others(
    unit: Units, store: Store, name: str
) -> None:
    frontend = await unit(name)
    async with raw_backend(store, lambda key, value: [res(key, value)]):
        assert await frontend.request("値", id="識別子-1", timeout=10) == "値".encode()


async def test_a_call_that_is_cancelled_leaves_nothing_behind(unit: Units) -> None:
    frontend = await unit("FE")
    asking = asyncio.create_task(frontend.request(b"x"))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert len(frontend._frontend) == 0


async def test_closing_a_unit_ends_the_calls_that_wait(unit: Units, store: Store) -> None:
    frontend = await unit("FE")
    asking = asyncio.create_task(frontend.request(b"x", id="1"))
    await until_set(store, "MUF/FE/REQ/1")
    await frontend.close()
    with pytest.raises(MufConnectionLost):
        await asking
    for ask in (frontend.request, frontend.send, frontend.answer):
        with pytest.raises(MufConnectionLost) as lost:
            await ask("y")
        assert lost.value.state_changed is False
    with pytest.raises(MufConnectionLost):
        frontend.on_request(lambda request: b"")


async def test_a_store_that_is_closed_under_a_unit_ends_its_calls(store: Store, store_servers: StoreServers) -> None:
    own = await connect(store_servers.url)
    async with await Unit.connect("FE", own) as frontend:
        asking = asyncio.create_task(frontend.request(b"x", id="1"))
        await until_set(store, "MUF/FE/REQ/1")
        await own.close()
        with pytest.raises(MufConnectionLost):
            await asking


async def test_more_calls_than_the_store_takes_at_once_fail_or_are_answered(
    store: Store, store_servers: StoreServers
) -> None:
    limits = StoreLimits(pending_commands_max=20)
    async with (
        await connect(store_servers.url, limits=limits) as narrow,
        await Unit.connect("FE", narrow) as frontend,
        raw_backend(store, lambda key, value: [res(key, value)]),
    ):
        asking = [asyncio.create_task(frontend.request(b"%d" % n, timeout=10)) for n in range(100)]
        done = await asyncio.gather(*asking, return_exceptions=True)
        assert await frontend.request(b"and then") == b"and then"
    answered = [n for n, answer in enumerate(done) if answer == b"%d" % n]
    refused = [error.code for error in done if isinstance(error, StoreError)]
    assert answered
    assert set(refused) == {"STORE_BUSY"}
    assert len(answered) + len(refused) == 100


async def test_an_answer_can_be_waited_for_after_asking(unit: Units, store: Store) -> None:
    frontend, other = await unit("FE", codec="str"), await unit("FE", codec="str")
    async with raw_backend(
        store, lambda key, value: [err(key, b"no") if value == b"bad" else res(key, b"of " + value)]
    ):
        id = await frontend.send("x")
        assert await frontend.answer(id) == "of x"
        assert await other.answer(id) == "of x", "in another process as well"
        with pytest.raises(MufRemoteError):
            await frontend.answer(await frontend.send("bad"))
    waiting = asyncio.create_task(frontend.answer("later"))
    await store.command("SET", "MUF/FE/RES/later", "there", "EX", 10)
    assert await waiting == "there"
    with pytest.raises(MufTimeout):
        await frontend.answer("never", timeout=0.05)
    with pytest.raises(ValueError, match="id"):
        await frontend.answer("a/b")


async def test_codecs_work_at_the_edge(unit: Units, store: Store) -> None:
    frontend = await unit("FE", codec="json")
    async with raw_backend(store, lambda key, value: [res(key, b'{"got":' + value + b"}")]):
        assert await frontend.request([1, None]) == {"got": [1, None]}
        assert await frontend.request("x", codec="str") == '{"got":x}'
        assert await frontend.request(7, codec=(lambda n: bytes([n]), len)) == 9
    async with raw_backend(store, lambda key, value: [res(key, b"not json")]):
        with pytest.raises(ValueError, match="not JSON"):
            await frontend.request(1)


async def test_at_most_three_connections(unit: Units, store_servers) -> None:  # type: ignore[no-untyped-def]
    if store_servers.kind == "cluster":
        pytest.skip("in a cluster it is three for each primary")
    before = _clients(store_servers)
    one = await unit("BOTH")
    one.on_request(lambda request: request.raw)
    await one.ready()
    with pytest.raises(MufTimeout):
        await one.request(b"own unit is not served", timeout=0.01)
    assert _clients(store_servers) - before <= 3


def _clients(store_servers) -> int:  # type: ignore[no-untyped-def]
    return len(store_servers.primaries[0].call("CLIENT", "LIST").splitlines())
