"""Keyspace events: flags, probe, reconnect."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from tests.store.servers import Server, StoreServers, valkey

from mpreg.errors import StoreError
from mpreg.store import Gap, KeyEvent, KeyEvents, Store, StoreLimits, connect
from mpreg.store.notify import check_classes, lacking

pytestmark = pytest.mark.anyio
SETTING = "notify-keyspace-events"


def flags(server: Server) -> set[str]:
    return set(server.call("CONFIG", "GET", SETTING)[1].decode())


async def take(events: KeyEvents, count: int) -> list[KeyEvent | Gap]:
    return [await anext(events) for _ in range(count)]


@pytest.mark.parametrize(
    ("found", "needs", "missing"),
    [
        ("", "$", "K$"),
        ("AKE", "K$g", ""),
        ("KA", "nm", "mn"),
        ("E$", "$g", "Kg"),
        ("K$gx", "h", "h"),
        ("K", "A", "$eghlstxz" + "d"),
    ],
)
def test_flags_that_are_missing(found: str, needs: str, missing: str) -> None:
    assert set(lacking(found, check_classes(needs))) == set(missing)


@pytest.mark.parametrize("needs", ["", "K", "Q", "$ "])
async def test_unknown_classes_are_refused(store: Store, needs: str) -> None:
    with pytest.raises(StoreError) as refused:
        store.keyspace_events("*", needs=needs)
    assert refused.value.details["option"] == "needs"


async def test_events_of_every_matching_key_come(store: Store) -> None:
    async with store.keyspace_events("a/*", keys=[b"b"], needs="$gl") as events:
        for n in range(20):
            await store.command("SET", f"a/{n}", n)
            await store.command("SET", f"x/{n}", n)
        await store.command("RPUSH", "b", 1)
        await store.command("DEL", "b")
        got = await take(events, 22)
        assert set(got) == {
            *(KeyEvent(b"a/%d" % n, "set") for n in range(20)),
            KeyEvent(b"b", "rpush"),
            KeyEvent(b"b", "del"),
        }
        assert events.silent is None


async def test_flags_are_added_and_never_taken_away() -> None:
    with valkey(options=["--notify-keyspace-events", "Exh"]) as server:
        async with await connect(server.url) as store:
            async with store.keyspace_events("*"):
                assert flags(server) == set("ExhK$")
            async with store.keyspace_events("*", needs="l"):
                assert flags(server) == set("ExhK$l")
            assert flags(server) == set("ExhK$l")


async def test_who_may_not_configure_learns_which_flags_are_missing() -> None:
    with valkey(options=["--notify-keyspace-events", "E$"]) as server:
        async with await connect(server.url) as store:
            with pytest.raises(StoreError) as silent:
                async with store.keyspace_events("*", configure=False):
                    pass
            assert silent.value.code == "STORE_NO_EVENTS"
            assert silent.value.details == {"needed": "K$", "found": "$E"}
            assert flags(server) == set("E$")


@pytest.fixture
def restricted() -> Iterator[Server]:
    """A server whose user may do all but CONFIG, as on managed servers."""
    with valkey() as server:
        server.call("ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-config")
        yield server


async def test_where_the_setting_can_not_be_read_a_probe_proves_events(restricted: Server) -> None:
    restricted.call("CONFIG", "SET", SETTING, "K$lshztg")
    url = f"unix://app:secret@{restricted.socket}"
    async with await connect(url) as store:
        async with store.keyspace_events("k", needs="$lshztg", probe_key="own/probe") as events:
            await store.command("SET", "k", 1)
            assert await anext(events) == KeyEvent(b"k", "set")
        assert [page async for page in store.scan("own/probe*")] == []


async def test_a_probe_without_events_is_an_error_or_a_warning_and_a_reason(
    restricted: Server, caplog: pytest.LogCaptureFixture
) -> None:
    limits = StoreLimits(probe_timeout_s=0.05)
    async with await connect(f"unix://app:secret@{restricted.socket}", limits=limits) as store:
        with pytest.raises(StoreError) as silent:
            async with store.keyspace_events("k"):
                pass
        assert silent.value.code == "STORE_NO_EVENTS"
        with caplog.at_level(logging.WARNING):
            async with store.keyspace_events("k", required=False) as events:
                assert events.silent is not None
                assert "probe" in events.silent
        assert "polled" in caplog.text


async def test_who_may_not_write_the_probe_key_gets_a_reason() -> None:
    with valkey() as server:
        server.call("ACL", "SETUSER", "app", "on", ">secret", "~app:*", "&*", "+@all", "-config")
        url = f"unix://app:secret@{server.socket}"
        async with await connect(url) as store, store.keyspace_events("app:*", required=False) as events:
            assert "refused" in (events.silent or "")


async def test_after_a_restart_flags_and_subscription_are_back_before_the_gap_is_seen() -> None:
    with valkey(durability="always") as server:
        async with await connect(server.url) as store, store.keyspace_events("k") as events:
            await store.command("SET", "k", 1)
            assert await anext(events) == KeyEvent(b"k", "set")
            server.kill()
            server.start()
            assert await anext(events) == Gap("reconnect")
            assert flags(server) == set("K$")
            server.call("SET", "k", 2)
            assert await anext(events) == KeyEvent(b"k", "set")


async def test_events_of_another_database_are_not_heard(store_servers: StoreServers) -> None:
    if store_servers.kind == "cluster":
        return  # which has one database
    async with (
        await connect(f"{store_servers.url}?db=5") as five,
        await connect(store_servers.url) as zero,
        five.keyspace_events("*") as events,
    ):
        await zero.command("SET", "k", 1)
        await five.command("SET", "j", 1)
        assert await anext(events) == KeyEvent(b"j", "set")
