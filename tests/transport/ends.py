"""Both ends of a link for tests: a handler that records, one that echoes, and a listener with a link to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from mpreg.errors import MpregError
from mpreg.transport import Link, Listener, TlsFiles, dial, listen
from mpreg.wire.encoding import Encoding
from mpreg.wire.limits import CLIENT, Limits

PATIENCE_S = 20
SMALL = msgspec.structs.replace(CLIENT, frame_bytes_max=4000, message_bytes_max=20_000, chunk_bytes=1000)


class Recorder:
    """Keeps what a link tells, and lets a test wait for it."""

    def __init__(self) -> None:
        self.link: Link
        self.messages: list[tuple[bytes, Encoding]] = []
        self.refused: list[MpregError] = []
        self.closed = False
        self.error: MpregError | None = None
        self._changed = asyncio.Event()

    def accept(self, link: Link) -> Recorder:
        self.link = link
        return self

    def on_message(self, link: Link, message: bytes, encoding: Encoding) -> None:
        assert not self.closed
        self.messages.append((message, encoding))
        self._changed.set()

    def on_refused(self, link: Link, error: MpregError) -> None:
        assert not self.closed
        self.refused.append(error)
        self._changed.set()

    def on_closed(self, link: Link, error: MpregError | None) -> None:
        assert not self.closed
        self.closed = True
        self.error = error
        self._changed.set()

    async def until(self, condition: Callable[[Recorder], Any]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()

    async def next(self) -> tuple[bytes, Encoding]:
        await self.until(lambda me: me.messages)
        return self.messages.pop(0)

    async def gone(self) -> MpregError | None:
        await self.until(lambda me: me.closed)
        return self.error


class Echo(Recorder):
    """Answers every message with itself, and every refusal with its code, as JSON."""

    def on_message(self, link: Link, message: bytes, encoding: Encoding) -> None:
        link.send(message, encoding)

    def on_refused(self, link: Link, error: MpregError) -> None:
        super().on_refused(link, error)
        link.send(msgspec.json.encode({"code": error.code, **error.details}), Encoding.JSON)


class Echoes:
    """Accepts any number of links, an `Echo` for each."""

    def __init__(self, make: Callable[[], Recorder] = Echo) -> None:
        self.all: list[Recorder] = []
        self._make = make
        self._changed = asyncio.Event()

    def accept(self, link: Link) -> Recorder:
        echo = self._make()
        self.all.append(echo)
        self._changed.set()
        return echo.accept(link)

    async def first(self) -> Recorder:
        async with asyncio.timeout(PATIENCE_S):
            while not self.all:
                self._changed.clear()
                await self._changed.wait()
        return self.all[0]


@asynccontextmanager
async def listening(
    scheme: str,
    *,
    limits: Limits = CLIENT,
    tls: TlsFiles | None = None,
    make: Callable[[], Recorder] = Echo,
) -> AsyncIterator[tuple[Listener, Echoes]]:
    echoes = Echoes(make)
    listener = await listen(f"{scheme}://127.0.0.1:0", echoes.accept, limits=limits, tls=tls)
    try:
        yield listener, echoes
    finally:
        listener.close()
        for echo in echoes.all:
            echo.link.close()
        async with asyncio.timeout(PATIENCE_S):
            for echo in echoes.all:
                await echo.link.wait_closed()


@asynccontextmanager
async def connected(
    scheme: str,
    *,
    limits: Limits = CLIENT,
    client_limits: Limits | None = None,
    tls: TlsFiles | None = None,
    client_tls: TlsFiles | None = None,
    make: Callable[[], Recorder] = Echo,
) -> AsyncIterator[tuple[Recorder, Recorder]]:
    """The client's end and the listener's end of one link."""
    async with listening(scheme, limits=limits, tls=tls, make=make) as (listener, echoes):
        client = Recorder()
        link = await dial(
            listener.url, client.accept, limits=client_limits or limits, tls=client_tls, timeout_s=PATIENCE_S
        )
        try:
            yield client, await echoes.first()
        finally:
            link.close()
            async with asyncio.timeout(PATIENCE_S):
                await link.wait_closed()
