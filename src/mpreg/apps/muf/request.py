"""A request as a backend sees it, answered once: by `reply` or by `fail`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from mpreg.apps.muf.codecs import BYTES, Codec, encoded
from mpreg.apps.muf.names import Name, Status
from mpreg.apps.muf.ttl import check

Write = Callable[[bytes, bytes, float | None], Awaitable[None]]
"""Key, value, TTL."""
Note = Callable[[Name, bytes, float | None], Awaitable[None]]


class Request:
    """`unit` asked, under `id`; `raw` are the bytes as they were set."""

    __slots__ = ("_codec", "_done", "_expires_at", "_is_done", "_note", "_write", "answered", "name", "raw")

    def __init__(
        self, name: Name, raw: bytes, codec: Codec, write: Write, note: Note, expires_at: float | None = None
    ) -> None:
        self.name = name
        self.raw = raw
        self.answered = False
        """It has been decided on, so another answer is refused; also when nobody wants one any more."""
        self._done: asyncio.Event | None = None
        self._is_done = False
        self._codec = codec
        self._write = write
        self._note = note
        self._expires_at = expires_at

    @property
    def unit(self) -> str:
        """Who asks."""
        return self.name.unit

    @property
    def id(self) -> str:
        return self.name.id

    @property
    def data(self) -> Any:
        """What the unit's codec makes of the bytes; `ValueError` for bytes that do not decode."""
        return self._codec.decode(self.raw)

    @property
    def expired(self) -> bool:
        """Whether it is too late to start on it. What has begun may take longer than the request lives."""
        return self._expires_at is not None and time.monotonic() >= self._expires_at

    async def reply(self, data: Any, *, ttl: float | None = None) -> None:
        """Answer with RES. `RuntimeError` when the request is answered already; `ValueError` for data or a TTL that
        can't be, and then it is not answered."""
        await self._answer("RES", encoded(self._codec, data), ttl)

    async def fail(self, data: bytes | str, *, ttl: float | None = None) -> None:
        """Answer with ERR; the bytes are the caller's to read."""
        await self._answer("ERR", encoded(BYTES, data), ttl)

    async def progress(self, data: Any, *, ttl: float | None = None) -> None:
        """Leave a note on how far it is: `MUF/<backend>/KEEP/progress.<unit>.<id>`, which anyone can read or watch."""
        await self._note(self.name, encoded(self._codec, data), ttl)

    async def _answer(self, status: Status, data: bytes, ttl: float | None) -> None:
        if ttl is not None:
            check(ttl)
        if self.answered:
            raise RuntimeError(f"{self.id} is answered already")
        self.answered = True
        try:
            await self._write(self.name.with_status(status).key, data, ttl)
        finally:
            self._end()

    def drop(self) -> None:
        """It is not to be answered any more."""
        self.answered = True
        self._end()

    async def done(self) -> None:
        """Until the answer is written, or could not be, or nobody wants it any more."""
        if not self._is_done:
            self._done = self._done or asyncio.Event()
            await self._done.wait()

    def _end(self) -> None:
        self._is_done = True
        if self._done is not None:
            self._done.set()

    def __repr__(self) -> str:
        return f"<Request {self.name.key.decode()}{' answered' if self.answered else ''}>"
