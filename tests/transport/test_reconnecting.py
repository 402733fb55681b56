"""A link that comes back, and links shared by address."""

from __future__ import annotations

import asyncio
import socket

import pytest
from tests.transport.ends import PATIENCE_S, Recorder, listening

from mpreg.errors import MpregError
from mpreg.transport import Backoff, BreakerPolicy, Pool, Reconnecting
from mpreg.wire.encoding import Encoding

pytestmark = pytest.mark.anyio
JSON = Encoding.JSON
QUICK = Backoff(0.001, 2, 0.01)


@pytest.fixture
def nowhere() -> str:
    """An address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"tcp://127.0.0.1:{server.getsockname()[1]}"


async def test_it_moves_on_to_the_next_address_and_comes_back_when_the_link_ends(nowhere: str) -> None:
    async with listening("tcp") as (listener, echoes):
        client = Recorder()
        async with Reconnecting([nowhere, listener.url], client.accept, backoff=QUICK) as connection:
            async with asyncio.timeout(PATIENCE_S):
                link = await connection.connected()
                link.send(b"{}", JSON)
                assert await client.next() == (b"{}", JSON)
                (await echoes.first()).link.close()
                await link.wait_closed()
                client.closed = False
                again = await connection.connected()
                assert again is not link
                again.send(b"{}", JSON)
                assert await client.next() == (b"{}", JSON)


async def test_while_nothing_answers_the_reason_is_known_and_close_ends_it(nowhere: str) -> None:
    async with Reconnecting([nowhere], Recorder().accept, backoff=QUICK) as connection:
        waiting = asyncio.ensure_future(connection.connected())
        async with asyncio.timeout(PATIENCE_S):
            while connection.error is None:
                await asyncio.sleep(0)
            assert connection.error.code == "TRANSPORT_CONNECTION_REFUSED"
            await connection.close()
            with pytest.raises(MpregError) as closed:
                await waiting
        assert closed.value.code == "TRANSPORT_CLOSED"
    with pytest.raises(MpregError):
        await connection.connected()


async def test_a_pool_shares_one_link_among_all_who_ask(nowhere: str) -> None:
    async with listening("ws") as (listener, echoes), Pool(lambda link: Recorder().accept(link)) as pool:
        links = await asyncio.gather(*(pool.link(listener.url) for _ in range(20)))
        assert len(set(map(id, links))) == 1
        assert len(echoes.all) == 1
        links[0].close()
        await links[0].wait_closed()
        assert await pool.link(listener.url) is not links[0]


async def test_a_pool_makes_as_many_links_as_allowed_and_gives_the_least_busy() -> None:
    async with (
        listening("tcp") as (listener, _),
        Pool(lambda link: Recorder().accept(link), links_per_address=2) as pool,
    ):
        first, second = await pool.link(listener.url), await pool.link(listener.url)
        assert first is not second
        first.send(b"{" + bytes(100), JSON)
        assert await pool.link(listener.url) is second


async def test_an_address_that_keeps_failing_is_left_alone_for_a_while(nowhere: str) -> None:
    async with Pool(Recorder().accept, policy=BreakerPolicy(failures_to_open=2, open_s=60)) as pool:
        codes = []
        for _ in range(4):
            with pytest.raises(MpregError) as failed:
                await pool.link(nowhere)
            codes.append(failed.value.code)
        assert codes == ["TRANSPORT_CONNECTION_REFUSED"] * 2 + ["TRANSPORT_CIRCUIT_OPEN"] * 2


async def test_a_caller_that_gives_up_does_not_take_the_dial_from_the_others() -> None:
    async with listening("ws") as (listener, echoes), Pool(lambda link: Recorder().accept(link)) as pool:
        quitter = asyncio.ensure_future(pool.link(listener.url))
        other = asyncio.ensure_future(pool.link(listener.url))
        await asyncio.sleep(0)
        quitter.cancel()
        assert not (await other).closed
        assert len(echoes.all) == 1


async def test_a_pool_is_bounded_and_forgets_addresses_without_links(nowhere: str) -> None:
    async with (
        listening("tcp") as (a, _),
        listening("tcp") as (b, _),
        Pool(lambda link: Recorder().accept(link), addresses_max=1) as pool,
    ):
        link = await pool.link(a.url)
        with pytest.raises(MpregError) as full:
            await pool.link(b.url)
        assert full.value.code == "RESOURCE_EXHAUSTED"
        assert full.value.details["addresses_max"] == 1
        link.close()
        await link.wait_closed()
        await pool.link(b.url)


async def test_a_closed_pool_closes_its_links_and_makes_no_more() -> None:
    async with listening("tcp") as (listener, _):
        pool = Pool(Recorder().accept)
        link = await pool.link(listener.url)
        await pool.close()
        assert link.closed
        with pytest.raises(MpregError) as closed:
            await pool.link(listener.url)
        assert closed.value.code == "TRANSPORT_CLOSED"
