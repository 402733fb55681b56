"""Locks on real servers."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.store.servers import valkey

from mpreg.errors import StoreError
from mpreg.store import Store, connect
from mpreg.store.lock import ACQUIRE, RELEASE, Lock
from mpreg.store.lock_keys import LockKeys, lock_keys
from mpreg.store.lock_view import break_lock, inspect

pytestmark = pytest.mark.anyio

ISSUE = lock_keys(
    "{r}issue_lock_5", visible="locked", owner_key="{r}issue_lock_owner_5", fence_key="{r}issue_lock_fence_5"
)
MODES = pytest.mark.parametrize(
    "keys", [lock_keys("plain"), lock_keys("recorded", record=True), ISSUE], ids=["token", "record", "fixed"]
)


@pytest.fixture
async def other(store: Store) -> AsyncIterator[Store]:
    """As another process would see it: tasks of one store stand in one line."""
    async with await connect(store.url, name="other") as opened:
        yield opened


async def until(holds: Any) -> None:
    async with asyncio.timeout(20):
        while not await holds():
            await asyncio.sleep(0.005)


@MODES
async def test_one_holder_until_it_gives_it_back(store: Store, keys: LockKeys) -> None:
    lock = Lock(store, keys)
    first = await lock.acquire()
    assert first.valid
    assert await lock.try_acquire() is None
    assert await first.release() is True
    assert not first.valid
    second = await lock.try_acquire()
    assert second is not None
    assert second.fence > first.fence
    assert await first.release() is False
    assert second.valid
    assert await second.release() is True
    assert await store.command("EXISTS", keys.lock) == 0
    assert keys.owner is None or await store.command("EXISTS", keys.owner) == 0


@MODES
async def test_every_key_has_a_ttl(store: Store, keys: LockKeys) -> None:
    held = await Lock(store, keys, ttl_s=30).acquire()
    assert 29_000 < await store.command("PTTL", keys.lock) <= 30_000
    assert await store.command("PTTL", keys.fence) > 30_000
    if keys.owner is not None:
        assert await store.command("PEXPIRETIME", keys.owner) == await store.command("PEXPIRETIME", keys.lock)
    await held.release()


async def test_a_plain_lock_holds_its_token(store: Store) -> None:
    held = await Lock(store, "plain", owner="worker 7").acquire()
    assert await store.command("GET", "plain") == held.token.encode()
    assert held.token.startswith("worker 7:")


async def test_a_fixed_lock_holds_its_value_and_the_owner_stands_beside_it(store: Store) -> None:
    held = await Lock(store, ISSUE, owner="agent-1", ttl_s=600).acquire()
    assert await store.command("GET", ISSUE.lock) == b"locked"
    assert ISSUE.owner is not None
    record = await store.command("HGETALL", ISSUE.owner)
    assert record.keys() == {b"agent", b"token", b"fence", b"acquired_at"}
    assert record[b"agent"] == b"agent-1"
    assert record[b"token"] == held.token.encode()
    assert int(record[b"fence"]) == held.fence
    assert abs(float(record[b"acquired_at"]) - time.time()) < 60


async def test_a_held_lock_is_refused_with_its_owner(store: Store) -> None:
    await Lock(store, "a", owner="worker 7").acquire()
    with pytest.raises(StoreError) as refused:
        await Lock(store, "a").acquire(wait_s=0)
    assert refused.value.code == "STORE_LOCK_HELD"
    assert refused.value.details["owner"] == "worker 7"
    assert refused.value.retryable
    with pytest.raises(StoreError) as waited:
        await Lock(store, "a").acquire(wait_s=0.05)
    assert waited.value.details["owner"] == "worker 7"


@pytest.mark.parametrize("ttl_s", [0, -1, 0.05, float("nan"), float("inf"), True])
async def test_no_lock_without_a_sane_ttl(store: Store, ttl_s: float) -> None:
    with pytest.raises(StoreError) as refused:
        Lock(store, "a", ttl_s=ttl_s)
    assert refused.value.details == {"option": "ttl_s"}


@pytest.mark.parametrize("wait_s", [-1, float("nan"), True])
async def test_a_wait_is_zero_or_more(store: Store, wait_s: float) -> None:
    with pytest.raises(StoreError) as refused:
        await Lock(store, "a").acquire(wait_s=wait_s)
    assert refused.value.details == {"option": "wait_s"}
    assert await store.command("EXISTS", "a") == 0


@pytest.mark.parametrize("owner", ["", "a\nb", "x" * 201])
async def test_an_owner_is_printable(store: Store, owner: str) -> None:
    with pytest.raises(StoreError) as refused:
        Lock(store, "a", owner=owner)
    assert refused.value.details == {"option": "owner"}


async def test_a_key_of_another_type_is_no_lock_and_is_left_alone(store: Store) -> None:
    await store.command("RPUSH", "a", "x")
    with pytest.raises(StoreError) as refused:
        await Lock(store, "a").acquire()
    assert refused.value.code == "STORE_WRONG_TYPE"
    await store.command("SET", "{b}:fence", "no number")
    with pytest.raises(StoreError):
        await Lock(store, "b").acquire()
    assert await store.command("EXISTS", "b") == 0


async def test_it_is_renewed_while_it_is_held(store: Store, other: Store) -> None:
    async with Lock(store, "a", ttl_s=2.0).hold() as held:
        first = await store.command("PEXPIRETIME", "a")
        for _ in range(3):  # three renewals: well over the TTL

            async def renewed(before: int = first) -> bool:
                return bool(await store.command("PEXPIRETIME", "a") > before)

            await until(renewed)
            first = await store.command("PEXPIRETIME", "a")
        assert held.valid
        assert await Lock(other, "a").try_acquire() is None
    assert await store.command("EXISTS", "a") == 0


async def test_without_renewal_it_runs_out_and_the_holder_knows_first(store: Store) -> None:
    held = await Lock(store, "a", ttl_s=0.2, renew=False).acquire()
    await held.wait_lost()
    assert held.lost
    assert not held.valid
    with pytest.raises(StoreError) as lost:
        held.check()
    assert lost.value.code == "STORE_LOCK_LOST"
    assert lost.value.details == {"name": "a", "fence": held.fence}


async def test_who_waits_gets_it_when_it_is_given_back(store: Store, other: Store) -> None:
    held = await Lock(store, "a", ttl_s=60).acquire()
    waiting = asyncio.create_task(Lock(other, "a", ttl_s=60).acquire(wait_s=20))

    async def listens() -> bool:
        counts = [await link.command("PUBSUB", "NUMSUB", "{a}:released") for link in store.primaries()]
        return sum(count[1] for count in counts) == 1

    await until(listens)
    await held.release()
    async with asyncio.timeout(10):
        assert (await waiting).fence > held.fence


async def test_who_waits_gets_it_when_it_runs_out(store: Store, other: Store) -> None:
    dead = await Lock(store, "a", ttl_s=0.2).acquire()
    dead.leave()
    async with asyncio.timeout(10):
        assert (await Lock(other, "a").acquire(wait_s=math.inf)).fence > dead.fence


async def test_who_waits_gets_it_when_a_peer_just_deletes_it(store: Store, other: Store) -> None:
    held = await Lock(store, "a", ttl_s=60).acquire()
    waiting = asyncio.create_task(Lock(other, "a").acquire(wait_s=20))
    await asyncio.sleep(0)
    await store.command("DEL", "a")
    async with asyncio.timeout(10):
        assert (await waiting).fence > held.fence


async def test_tasks_of_one_process_get_it_in_the_order_in_which_they_asked(store: Store) -> None:
    lock = Lock(store, "a")
    order: list[int] = []

    async def one(number: int) -> None:
        async with lock.hold(wait_s=20) as held:
            order.append(number)
            held.check()

    first = await lock.acquire()
    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(one(number))
            await asyncio.sleep(0)
        await first.release()
    assert order == list(range(20))


async def test_a_waiter_that_is_cancelled_leaves_nothing_behind(store: Store) -> None:
    lock = Lock(store, "a", ttl_s=60)
    held = await lock.acquire()
    waiters = [asyncio.create_task(lock.acquire(wait_s=30)) for _ in range(10)]
    await asyncio.sleep(0)
    for waiter in waiters:
        waiter.cancel()
    await asyncio.wait(waiters)
    assert all(waiter.cancelled() for waiter in waiters)
    await held.release()
    again = await lock.acquire(wait_s=5)
    assert await again.release()


async def test_an_attempt_that_is_cancelled_before_its_answer_leaves_no_lock(store: Store) -> None:
    lock = Lock(store, "a", ttl_s=60)
    attempt = asyncio.create_task(lock.try_acquire())
    await asyncio.sleep(0)  # it is sent, and not answered yet
    attempt.cancel()
    await asyncio.wait([attempt])
    assert attempt.cancelled()
    assert await store.command("EXISTS", "a") == 0


async def test_the_same_token_asks_twice_and_holds_once(store: Store) -> None:
    """As after a connection that broke before the answer came."""
    for keys in (lock_keys("a"), ISSUE):
        lock = Lock(store, keys)
        token = lock.new_token()
        first, second = await lock.ask(token), await lock.ask(token)
        assert getattr(first, "fence", 0) == getattr(second, "fence", 1)


async def test_fences_grow_over_release_expiry_and_a_lost_counter(store: Store) -> None:
    lock = Lock(store, "a", ttl_s=0.1)
    fences = []
    for ending in ("release", "expire", "lose the counter", "release"):
        held = await lock.acquire(wait_s=5)
        fences.append(held.fence)
        if ending == "release":
            await held.release()
        else:
            held.leave()
        if ending == "lose the counter":
            await store.command("DEL", "{a}:fence")
    assert fences == sorted(set(fences))


async def test_a_counter_ahead_of_the_clock_goes_on_from_there(store: Store) -> None:
    ahead = 9_000_000_000_000_000
    await store.command("SET", "{a}:fence", ahead)
    lock = Lock(store, "a")
    for n in range(1, 4):
        held = await lock.acquire()
        assert held.fence == ahead + n
        await held.release()


async def test_a_block_whose_lock_is_broken_is_cancelled_and_says_so(store: Store) -> None:
    lock = Lock(store, "a", ttl_s=0.3)
    inside = asyncio.Event()

    async def work() -> None:
        async with lock.hold():
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await inside.wait()
    assert await break_lock(store, lock.keys, reason="stuck") is not None
    with pytest.raises(StoreError) as lost:
        async with asyncio.timeout(10):
            await task
    assert lost.value.code == "STORE_LOCK_LOST"
    assert not task.cancelled()


async def test_a_block_that_only_wants_a_signal_runs_on(store: Store) -> None:
    lock = Lock(store, "a", ttl_s=0.3)
    ran_on = False

    async def work() -> None:
        nonlocal ran_on
        async with lock.hold(on_lost="signal") as held:
            await break_lock(store, lock.keys, reason="stuck")
            async with asyncio.timeout(10):
                await held.wait_lost()
            await asyncio.sleep(0)  # nobody cancels it
            ran_on = True

    with pytest.raises(StoreError) as lost:
        await work()
    assert lost.value.code == "STORE_LOCK_LOST"
    assert ran_on


async def test_who_is_cancelled_from_outside_stays_cancelled(store: Store) -> None:
    lock = Lock(store, "a")
    inside = asyncio.Event()

    async def work() -> None:
        async with lock.hold():
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert await store.command("EXISTS", "a") == 0


async def test_an_error_in_the_block_gets_through_and_the_lock_is_given_back(store: Store) -> None:
    with pytest.raises(ZeroDivisionError):
        async with Lock(store, "a").hold():
            raise ZeroDivisionError
    assert await store.command("EXISTS", "a") == 0


async def test_left_to_its_ttl_it_is_nobodys_but_stays_taken(store: Store) -> None:
    held = await Lock(store, ISSUE, ttl_s=600).acquire()
    held.leave()
    assert not held.valid
    assert not held.lost
    assert await Lock(store, ISSUE).try_acquire() is None
    assert await Lock(store, ISSUE).send_release(held.token) == 1


# --- peers that know the visible key only ---------------------------------------------------------------------------


async def test_a_peer_that_deletes_a_fixed_lock_leaves_an_owner_that_counts_for_nothing(store: Store) -> None:
    first = await Lock(store, ISSUE, ttl_s=600).acquire()
    await store.command("DEL", ISSUE.lock)
    assert ISSUE.owner is not None
    assert await store.command("EXISTS", ISSUE.owner) == 1
    second = await Lock(store, ISSUE, ttl_s=600, owner="second").acquire(wait_s=0)
    assert second.fence > first.fence
    assert await first.release() is False
    assert second.valid
    assert await store.command("HGET", ISSUE.owner, "agent") == b"second"
    assert await second.release() is True


async def test_a_peer_that_took_a_fixed_lock_after_deleting_it_is_not_mistaken_for_us(store: Store) -> None:
    """The value is the same and our owner record is still there; only the times at which they run out differ."""
    ours = Lock(store, ISSUE, ttl_s=600)
    held = await ours.acquire()
    await store.command("DEL", ISSUE.lock)
    await store.command("SET", ISSUE.lock, "locked", "NX", "PX", 600_500)
    assert await ours.send_renew(held.token) == 0
    assert await held.release() is False
    assert await store.command("GET", ISSUE.lock) == b"locked"
    assert await ours.try_acquire() is None
    view = await inspect(store, ISSUE)
    assert (view.held, view.owner, view.token) == (True, "locked", "locked")


async def test_a_lock_that_a_peer_set_is_respected(store: Store) -> None:
    await store.command("SET", "a", "somebody", "PX", 60_000)
    await store.command("SET", ISSUE.lock, "locked", "PX", 60_000)
    for lock in (Lock(store, "a"), Lock(store, ISSUE)):
        with pytest.raises(StoreError) as refused:
            await lock.acquire(wait_s=0)
        assert refused.value.code == "STORE_LOCK_HELD"


# --- inspection and force -------------------------------------------------------------------------------------------


@MODES
async def test_a_lock_can_be_looked_at(store: Store, keys: LockKeys) -> None:
    free = await inspect(store, keys)
    assert (free.held, free.owner, free.fence) == (False, None, None)
    held = await Lock(store, keys, owner="worker 7", ttl_s=60).acquire()
    view = await inspect(store, keys)
    assert (view.held, view.owner, view.token, view.fence) == (True, "worker 7", held.token, held.fence)
    assert view.ttl_s is not None
    assert 59 < view.ttl_s <= 60
    await held.release()
    assert (await inspect(store, keys)).fence == held.fence


@MODES
async def test_breaking_a_lock_is_written_down(store: Store, keys: LockKeys) -> None:
    assert await break_lock(store, keys, reason="nobody holds it") is None
    held = await Lock(store, keys, owner="worker 7").acquire()
    assert await break_lock(store, keys, reason="not this one", token="another") is None
    done = await break_lock(store, keys, reason="it hangs", by="op", token=held.token)
    assert done is not None
    assert (done.by, done.reason, done.token) == ("op", "it hangs", held.token)
    assert (await inspect(store, keys)).breaks == (done,)
    assert await held.release() is False
    after = await Lock(store, keys).acquire(wait_s=0)
    assert after.fence > held.fence
    with pytest.raises(StoreError):
        await break_lock(store, keys, reason="")


async def test_the_record_of_breaks_is_bounded(store: Store) -> None:
    for n in range(20):
        await Lock(store, "a").acquire(wait_s=0)
        await break_lock(store, lock_keys("a"), reason=str(n))
    assert [entry.reason for entry in (await inspect(store, lock_keys("a"))).breaks] == [
        str(n) for n in range(19, 3, -1)
    ]
    assert await store.command("PTTL", "{a}:breaks") > 0


# --- a store that goes away -----------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def own_server(durability: str) -> AsyncIterator[tuple[Any, Store]]:
    with valkey(durability=durability) as server:
        async with await connect(server.url) as opened:
            yield server, opened


async def test_fences_grow_over_a_store_that_forgot_everything() -> None:
    async with own_server("memory") as (server, store):
        held = await Lock(store, "a", ttl_s=60).acquire()
        server.kill()
        server.start()
        again = await Lock(store, "a", ttl_s=60).acquire(wait_s=20)
        assert again.fence > held.fence
        assert await held.release() is False


async def test_a_durable_store_keeps_the_lock_over_its_death() -> None:
    async with own_server("always") as (server, store):
        held = await Lock(store, "a", ttl_s=60).acquire()
        server.kill()
        server.start()

        async def refused() -> bool:
            with contextlib.suppress(StoreError):
                return await Lock(store, "a").try_acquire() is None
            return False

        await until(refused)
        assert held.valid
        assert await held.release() is True


async def test_a_holder_cut_off_from_the_store_learns_that_it_lost() -> None:
    async with own_server("memory") as (server, store):
        held = await Lock(store, "a", ttl_s=0.5).acquire()
        server.kill()
        async with asyncio.timeout(10):
            await held.wait_lost()
        assert not held.valid


async def test_without_the_right_to_subscribe_or_publish_locks_still_pass_on() -> None:
    with valkey() as server:
        server.call("ACL", "SETUSER", "dumb", "on", ">pw", "~*", "+@all", "resetchannels")
        url = server.url.replace("unix://", "unix://dumb:pw@")
        async with await connect(url) as one, await connect(url) as two:
            held = await Lock(one, "a").acquire()
            waiting = asyncio.create_task(Lock(two, "a").acquire(wait_s=20))
            await asyncio.sleep(0)
            assert await held.release()
            async with asyncio.timeout(10):
                await waiting


async def test_a_script_that_is_forgotten_is_loaded_again(store: Store) -> None:
    held = await Lock(store, "a").acquire()
    for link in store.primaries():
        await link.command("SCRIPT", "FLUSH")
    assert await held.release()
    assert ACQUIRE.sha != RELEASE.sha
