"""The answering side, with raw commands on the other."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from tests.apps.muf.conftest import Units
from tests.apps.muf.peer import all_keys, until_set

from mpreg.apps.muf import Request, codecs
from mpreg.apps.muf.handlers import Late, in_time
from mpreg.apps.muf.names import Name
from mpreg.store import Store

pytestmark = pytest.mark.anyio


async def echo(request: Request) -> bytes:
    return b"echo " + request.raw


async def ask(store: Store, id: str, value: str | bytes = b"x", unit: str = "FE", ttl_s: int = 10) -> None:
    await store.command("SET", f"MUF/{unit}/REQ/{id}", value, "EX", ttl_s)


async def test_a_request_by_redis_cli_is_answered_with_the_ttl_of_the_note(unit: Units, store: Store) -> None:
    backend = await unit("BE")
    backend.on_request(echo)
    await backend.ready()
    await ask(store, "1", b"\x00\xff")
    assert await until_set(store, "MUF/FE/RES/1") == b"echo \x00\xff"
    assert 29 <= await store.command("TTL", "MUF/FE/RES/1") <= 30
    assert await all_keys(store) == {b"MUF/FE/REQ/1", b"MUF/FE/RES/1"}


async def test_a_handler_that_raises_answers_err_without_a_traceback(unit: Units, store: Store) -> None:
    backend = await unit("BE")

    @backend.on_request
    def divide(request: Request) -> bytes:
        return b"%d" % (1 // int(request.raw))

    await backend.ready()
    await ask(store, "1", b"0")
    answer = await until_set(store, "MUF/FE/ERR/1")
    assert answer == b"ZeroDivisionError: integer division or modulo by zero"
    assert await store.command("EXISTS", "MUF/FE/RES/1") == 0


async def test_a_value_that_does_not_decode_is_answered_with_err(unit: Units, store: Store) -> None:
    backend = await unit("BE", codec="json")
    backend.on_request(lambda request: request.data)
    await backend.ready()
    await ask(store, "1", b"{broken")
    assert (await until_set(store, "MUF/FE/ERR/1")).startswith(b"ValueError: the value is not JSON")
    await ask(store, "2", b"[1,2]")
    assert await until_set(store, "MUF/FE/RES/2") == b"[1,2]"


async def test_foreign_keys_are_ignored_and_counted(unit: Units, store: Store) -> None:
    backend = await unit("BE")
    backend.on_request(echo)
    await backend.ready()
    for key in ("MUF/a/REQ/b/REQ/c", "MUF/a/b/REQ/c", "MUF//REQ/c", "MUF/a/REQ/", "MUF/a/res/REQ/1"):
        await store.command("SET", key, "x", "EX", 10)
    await ask(store, "last")
    await until_set(store, "MUF/FE/RES/last")
    assert backend._backends[0].handled == 1
    assert not any(b"/RES/" in key and b"FE" not in key for key in await all_keys(store))


async def test_requests_from_before_the_start_are_caught_up_but_not_the_answered_and_the_claimed(
    unit: Units, store: Store
) -> None:
    await ask(store, "waiting")
    await ask(store, "answered")
    await store.command("SET", "MUF/FE/RES/answered", "old", "EX", 30)
    await ask(store, "failed")
    await store.command("SET", "MUF/FE/ERR/failed", "old", "EX", 30)
    await ask(store, "claimed")
    await store.command("SET", "MUF/GROUP/KEEP/claim.FE.claimed", "someone", "EX", 10)
    ran: list[str] = []
    backend = await unit("BE")

    @backend.on_request(group="GROUP", concurrency=1)
    async def note(request: Request) -> None:
        ran.append(request.id)

    await backend.ready()
    assert await until_set(store, "MUF/FE/RES/waiting") == b""
    await ask(store, "last")
    await until_set(store, "MUF/FE/RES/last")
    assert ran == ["waiting", "last"]
    assert await store.command("EXISTS", "MUF/FE/RES/claimed") == 0


async def test_a_group_runs_each_request_once_and_every_group_runs_it(unit: Units, store: Store) -> None:
    ran: list[tuple[str, str]] = []
    for number in range(6):
        backend = await unit(f"BE{number}")
        group = "A" if number < 3 else "B"

        @backend.on_request(group=group)
        async def note(request: Request, group: str = group) -> bytes:
            ran.append((group, request.id))
            return b"by " + group.encode()

        await backend.ready()
    for n in range(50):
        await ask(store, str(n))
    for n in range(50):
        await until_set(store, f"MUF/FE/RES/{n}")
    await asyncio.gather(*(quiet(store, str(n)) for n in range(50)))
    assert sorted(ran) == sorted((group, str(n)) for group in "AB" for n in range(50))


async def quiet(store: Store, id: str) -> None:
    """Both groups have claimed it."""
    for group in "AB":
        await until_set(store, f"MUF/{group}/KEEP/claim.FE.{id}")


async def test_a_claim_is_a_keep_key_that_lasts_as_long_as_the_request(unit: Units, store: Store) -> None:
    backend = await unit("BE")
    backend.on_request(group="GROUP")(echo)
    await backend.ready()
    await ask(store, "1", ttl_s=20)
    await until_set(store, "MUF/FE/RES/1")
    assert await all_keys(store) == {b"MUF/FE/REQ/1", b"MUF/FE/RES/1", b"MUF/GROUP/KEEP/claim.FE.1"}
    assert 19_000 < await store.command("PTTL", "MUF/GROUP/KEEP/claim.FE.1") <= 21_000


async def test_a_backend_takes_only_what_is_for_it_and_says_nothing_to_the_rest(unit: Units, store: Store) -> None:
    by_issuer = await unit("BE1")
    by_issuer.on_request(issuers=["FE"])(lambda request: b"issuer")
    by_target = await unit("BE2")
    by_target.on_request(target="CONVERT")(lambda request: b"target")
    by_name = await unit("BE3")
    by_name.on_request(when=lambda name: name.id.endswith("!"))(lambda request: b"when")
    for each in (by_issuer, by_target, by_name):
        await each.ready()
    await ask(store, "1", unit="OTHER")
    await ask(store, "CONVERTED.1", unit="OTHER")
    await ask(store, "1", unit="FE")
    assert await until_set(store, "MUF/FE/RES/1") == b"issuer"
    await ask(store, "CONVERT.1", unit="OTHER")
    assert await until_set(store, "MUF/OTHER/RES/CONVERT.1") == b"target"
    await ask(store, "hey!", unit="OTHER")
    assert await until_set(store, "MUF/OTHER/RES/hey!") == b"when"
    assert await store.command("EXISTS", "MUF/OTHER/RES/1") + await store.command("EXISTS", "MUF/OTHER/ERR/1") == 0
    assert await store.command("EXISTS", "MUF/OTHER/RES/CONVERTED.1") == 0


async def test_a_unit_does_not_serve_itself(unit: Units, store: Store) -> None:
    both = await unit("SELF")
    both.on_request(lambda request: b"answer")
    await both.ready()
    await ask(store, "1", unit="SELF")
    await ask(store, "1", unit="FE")
    assert await until_set(store, "MUF/FE/RES/1") == b"answer"
    assert await store.command("EXISTS", "MUF/SELF/RES/1") == 0


async def test_what_a_busy_backend_cannot_take_is_left_to_others(unit: Units, store: Store) -> None:
    release = asyncio.Event()
    slow = await unit("SLOW")

    @slow.on_request(group="G", concurrency=1)
    async def wait(request: Request) -> bytes:
        await release.wait()
        return b"slow"

    await slow.ready()
    await ask(store, "1")
    await until_set(store, "MUF/G/KEEP/claim.FE.1")
    await ask(store, "2")
    await ask(store, "3")
    quick = await unit("QUICK")
    quick.on_request(group="G")(lambda request: b"quick")
    await quick.ready()
    assert await until_set(store, "MUF/FE/RES/2") == b"quick"
    assert await until_set(store, "MUF/FE/RES/3") == b"quick"
    release.set()
    assert await until_set(store, "MUF/FE/RES/1") == b"slow"


async def test_a_request_that_had_no_room_is_taken_when_there_is_some(unit: Units, store: Store) -> None:
    backend = await unit("BE")
    running, most = 0, 0
    two = asyncio.Event()

    @backend.on_request(concurrency=2)
    async def count(request: Request) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            two.set()
        await two.wait()
        running -= 1

    await backend.ready()
    for n in range(30):
        await ask(store, str(n))
    for n in range(30):
        await until_set(store, f"MUF/FE/RES/{n}")
    assert most == 2


async def test_requests_one_by_one_with_reply_and_fail(unit: Units, store: Store) -> None:
    backend = await unit("BE")

    async def loop() -> None:
        async for request in backend.requests(group="G"):
            if request.raw == b"bad":
                await request.fail("no")
            else:
                await request.reply(request.raw.upper(), ttl=100)

    serving = asyncio.create_task(loop())
    await ask(store, "1", b"good")
    await ask(store, "2", b"bad")
    assert await until_set(store, "MUF/FE/RES/1") == b"GOOD"
    assert await store.command("TTL", "MUF/FE/RES/1") > 90
    assert await until_set(store, "MUF/FE/ERR/2") == b"no"
    await backend.close()
    await serving


async def test_an_answer_is_given_once(unit: Units, store: Store) -> None:
    backend = await unit("BE")
    refused: list[str] = []

    @backend.on_request
    async def twice(request: Request) -> None:
        await request.reply(b"first")
        try:
            await request.fail(b"second")
        except RuntimeError as error:
            refused.append(str(error))

    await backend.ready()
    await ask(store, "1")
    assert await until_set(store, "MUF/FE/RES/1") == b"first"
    await backend.close()
    assert refused == ["1 is answered already"]
    assert await store.command("EXISTS", "MUF/FE/ERR/1") == 0


async def test_closing_finishes_what_was_taken_and_fails_what_takes_too_long(unit: Units, store: Store) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    backend = await unit("BE")

    @backend.on_request
    async def work(request: Request) -> bytes:
        started.set()
        await (go_on if request.raw == b"short" else asyncio.Event()).wait()
        return b"done"

    await backend.ready()
    await ask(store, "short", b"short")
    await started.wait()
    closing = asyncio.create_task(backend.close(10))
    await asyncio.sleep(0)
    go_on.set()
    await closing
    assert await store.command("GET", "MUF/FE/RES/short") == b"done"

    started.clear()
    second = await unit("BE2")
    second.on_request(work)
    await second.ready()
    await ask(store, "long", b"long")
    await started.wait()
    await second.close(0)
    assert await store.command("GET", "MUF/FE/ERR/long") == b"shutting down"


async def test_progress_is_a_note_that_anyone_can_read(unit: Units, store: Store) -> None:
    backend = await unit("BE")

    @backend.on_request
    async def work(request: Request) -> bytes:
        await request.progress(b"50 %")
        return b"done"

    await backend.ready()
    await ask(store, "1")
    await until_set(store, "MUF/FE/RES/1")
    assert await store.command("GET", "MUF/BE/KEEP/progress.FE.1") == b"50 %"


@pytest.mark.parametrize(
    "offer",
    [
        {"claim": "twice"},
        {"claim": "lease"},
        {"group": "a/b"},
        {"issuers": ["a b"]},
        {"issuers": "FE"},
        {"target": ""},
        {"concurrency": 0},
        {"concurrency": True},
        {"concurrency": 1.5},
        {"group": "G", "lease_s": 0},
        {"grup": "G"},
    ],
)
async def test_an_offer_that_makes_no_sense_is_refused_at_once(unit: Units, offer: dict[str, object]) -> None:
    backend = await unit("BE")
    with pytest.raises((ValueError, TypeError)):
        backend.on_request(**offer)


async def test_a_sync_function_has_as_many_threads_as_it_has_requests_at_a_time(unit: Units, store: Store) -> None:
    """Else requests would wait for a thread, claimed, until they expire."""
    together = threading.Barrier(20)
    backend = await unit("BE")

    @backend.on_request(concurrency=20)
    def meet(request: Request) -> bytes:
        together.wait(20)
        return b"met"

    await backend.ready()
    for n in range(20):
        await ask(store, str(n))
    for n in range(20):
        assert await until_set(store, f"MUF/FE/RES/{n}") == b"met"
    with pytest.raises(ValueError, match="concurrency: at most 1000 for a sync function"):
        backend.on_request(concurrency=1001)(lambda request: b"")


async def test_a_thread_that_comes_too_late_does_not_begin() -> None:
    ran: list[str] = []

    async def write(name: object, data: bytes, ttl_s: float | None) -> None:
        raise AssertionError("nobody waits for an answer")

    request = Request(Name("FE", "REQ", "1"), b"", codecs.BYTES, write, write, expires_at=time.monotonic())
    assert request.expired
    with pytest.raises(Late):
        in_time(lambda request: ran.append(request.id), request)
    assert ran == []


async def test_a_condition_that_fails_leaves_the_request_alone_and_the_backend_at_work(
    unit: Units, store: Store
) -> None:
    backend = await unit("BE")
    backend.on_request(when=lambda name: 1 / (name.id != "bad") > 0)(echo)
    await backend.ready()
    await ask(store, "bad")
    await ask(store, "good")
    assert await until_set(store, "MUF/FE/RES/good") == b"echo x"
    assert await store.command("EXISTS", "MUF/FE/ERR/bad") == 0


@pytest.mark.parametrize("bad", [{"data": object()}, {"data": b"", "ttl": 0}])
async def test_an_answer_that_cannot_be_is_no_answer_so_the_asker_is_told(
    unit: Units, store: Store, bad: dict[str, Any]
) -> None:
    backend = await unit("BE")

    @backend.on_request
    async def answer(request: Request) -> None:
        await request.reply(**bad)

    await backend.ready()
    await ask(store, "1")
    assert (await until_set(store, "MUF/FE/ERR/1")).startswith(b"ValueError: ")


async def test_a_handler_whose_own_work_was_cancelled_answers_err(unit: Units, store: Store) -> None:
    backend = await unit("BE")

    @backend.on_request
    async def work(request: Request) -> None:
        inner = asyncio.create_task(asyncio.Event().wait())
        inner.cancel()
        await inner

    await backend.ready()
    await ask(store, "1")
    assert await until_set(store, "MUF/FE/ERR/1") == b"CancelledError: "


async def test_a_function_that_returns_something_to_await_is_awaited(unit: Units, store: Store) -> None:
    backend = await unit("BE")

    @backend.on_request
    def begin(request: Request) -> Any:
        return echo(request)

    await backend.ready()
    await ask(store, "1")
    assert await until_set(store, "MUF/FE/RES/1") == b"echo x"


async def test_a_loop_takes_a_request_when_it_asks_for_one_and_leaves_the_rest_to_others(
    unit: Units, store: Store
) -> None:
    slow, quick = await unit("SLOW"), await unit("QUICK")
    requests = slow.requests(group="G")
    await ask(store, "1")
    first = await anext(requests)
    assert first.id == "1"
    await ask(store, "2")
    await ask(store, "3")
    quick.on_request(group="G")(lambda request: b"quick")
    await quick.ready()
    assert await until_set(store, "MUF/FE/RES/2") == b"quick"
    assert await until_set(store, "MUF/FE/RES/3") == b"quick"
    await first.reply(b"slow")
    assert await store.command("GET", "MUF/FE/RES/1") == b"slow"
    await requests.aclose()


async def test_a_loop_that_is_busy_for_long_gets_nothing_that_expired_meanwhile(unit: Units, store: Store) -> None:
    backend = await unit("BE")
    requests = backend.requests()
    await ask(store, "1")
    first = await anext(requests)
    await store.command("SET", "MUF/FE/REQ/old", "x", "PX", 100)
    while await store.command("EXISTS", "MUF/FE/REQ/old"):
        await asyncio.sleep(0.01)
    await ask(store, "new")
    await first.reply(b"")
    assert (await anext(requests)).id == "new"
    await requests.aclose()


async def test_a_loop_holds_no_more_than_it_may(unit: Units, store: Store) -> None:
    backend = await unit("BE")
    requests = backend.requests(concurrency=2)
    for n in range(3):
        await ask(store, str(n))
    held = [await anext(requests), await anext(requests)]
    third = asyncio.ensure_future(anext(requests))
    await ask(store, "more")
    done, _ = await asyncio.wait([third], timeout=0.1)
    assert not done
    await held[0].fail("no")
    assert (await third).id not in [request.id for request in held]
    await requests.aclose()


async def test_what_is_claimed_but_not_begun_when_a_backend_stops_is_given_back(unit: Units, store: Store) -> None:
    """It stops between the claim and the start, so another one of the group may have the request."""
    backend = await unit("BE")
    backend.on_request(group="G")(echo)
    await backend.ready()
    inner = backend._backends[0]
    inner._stopping = True
    await ask(store, "1")
    async with store.keyspace_events("MUF/G/KEEP/*", needs="$xg") as events:
        other = await unit("OTHER")
        while await store.command("EXISTS", "MUF/G/KEEP/claim.FE.1"):
            await anext(events)
        other.on_request(group="G")(lambda request: b"other")
        await other.ready()
    assert await until_set(store, "MUF/FE/RES/1") == b"other"
    inner._stopping = False


async def test_a_unit_counts(unit: Units, store: Store) -> None:
    backend = await unit("BE")
    backend.on_request(echo)
    await backend.ready()
    await store.command("SET", "MUF/a/b/REQ/c", "x", "EX", 10)
    await ask(store, "1")
    await until_set(store, "MUF/FE/RES/1")
    found = backend.statistics
    assert (found.handled, found.ignored, found.calls, found.waiting, found.dropped, found.polls) == (
        *(1, 1, 0, 0, 0),
        False,
    )
