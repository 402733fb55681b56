"""Units for scripts and threads: the asyncio unit in a thread of its own, each call waited for.

    with sync.Unit.connect("FRONTEND", "valkey://127.0.0.1") as unit:
        answer = unit.request(b"hello", timeout=5)

Calls may come from many threads at once; each waits for its own answer only.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Self, TypeVar

from mpreg.apps.muf import request as asynchronous_request
from mpreg.apps.muf import unit as asynchronous
from mpreg.apps.muf.codecs import CodecLike
from mpreg.apps.muf.errors import MufConnectionLost
from mpreg.apps.muf.statistics import Statistics
from mpreg.apps.muf.ttl import Ttls
from mpreg.apps.muf.unit import DEFAULT, GRACE_S
from mpreg.loop_thread import LoopThread

__all__ = ["Request", "Unit"]

T = TypeVar("T")


class Request:
    """As `mpreg.apps.muf.Request`, for a program that answers without asyncio."""

    def __init__(self, request: asynchronous_request.Request, loop: LoopThread) -> None:
        self._request = request
        self._loop = loop
        self.name = request.name
        self.unit = request.unit
        self.id = request.id
        self.raw = request.raw

    @property
    def data(self) -> Any:
        return self._request.data

    @property
    def expired(self) -> bool:
        return self._request.expired

    def reply(self, data: Any, *, ttl: float | None = None) -> None:
        self._loop.run(self._request.reply(data, ttl=ttl))

    def fail(self, data: bytes | str, *, ttl: float | None = None) -> None:
        self._loop.run(self._request.fail(data, ttl=ttl))

    def progress(self, data: Any, *, ttl: float | None = None) -> None:
        self._loop.run(self._request.progress(data, ttl=ttl))

    def __repr__(self) -> str:
        return repr(self._request)


F = TypeVar("F", bound=Callable[[Request], Any])


class Unit:
    """As `mpreg.apps.muf.Unit`: the same arguments, results and errors. Close it, or use it with `with`."""

    def __init__(self, loop: LoopThread, unit: asynchronous.Unit) -> None:
        self._loop = loop
        self._unit = unit

    @classmethod
    def connect(
        cls, name: str, url: str, *, ttls: Ttls | None = None, codec: CodecLike = "bytes", alive: bool = False
    ) -> Self:
        loop = LoopThread(lambda changed: MufConnectionLost(name, "the unit is closed", state_changed=changed))
        try:
            return cls(loop, loop.run(asynchronous.Unit.connect(name, url, ttls=ttls, codec=codec, alive=alive)))
        except BaseException:
            loop.stop()
            raise

    @property
    def name(self) -> str:
        return self._unit.name

    def request(
        self,
        data: Any,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        id: str | None = None,
        target: str | None = None,
        codec: CodecLike | None = None,
    ) -> Any:
        """Ask, and wait for the answer. Ctrl-C ends the waiting; the request stays for its TTL."""
        return self._loop.run(self._unit.request(data, ttl=ttl, timeout=timeout, id=id, target=target, codec=codec))

    def send(
        self,
        data: Any,
        *,
        ttl: float | None = None,
        id: str | None = None,
        target: str | None = None,
        codec: CodecLike | None = None,
    ) -> str:
        """Ask without waiting; the id for `answer`."""
        return self._loop.run(self._unit.send(data, ttl=ttl, id=id, target=target, codec=codec))

    def answer(self, id: str, *, timeout: float | None = None, codec: CodecLike | None = None) -> Any:
        """Wait for the answer to what was sent."""
        return self._loop.run(self._unit.answer(id, timeout=timeout, codec=codec))

    def on_request(self, call: F | None = None, /, **offer: Any) -> Any:
        """Answer requests with what the function returns; it runs in threads, and its request is one of these here.
        Returns once requests are heard of."""

        def register(call: F) -> F:
            def answer(request: asynchronous_request.Request) -> Any:
                return call(Request(request, self._loop))

            self._loop.run(self._listen(answer, offer))
            return call

        return register if call is None else register(call)

    async def _listen(self, answer: Callable[[asynchronous_request.Request], Any], offer: dict[str, Any]) -> None:
        self._unit.on_request(**offer)(answer)
        await self._unit.ready()

    def requests(self, **offer: Any) -> Iterator[Request]:
        """Requests one by one, for a loop that answers each. It ends when the unit is closed, by another thread or by
        a signal's handler."""
        with contextlib.suppress(MufConnectionLost):
            for request in self._each(self._unit.requests(**offer)):
                yield Request(request, self._loop)

    def keep(self, name: str, data: Any, *, ttl: float | None = DEFAULT) -> None:
        self._loop.run(self._unit.keep(name, data, ttl=ttl))

    def kept(self, name: str, *, unit: str | None = None) -> Any:
        return self._loop.run(self._unit.kept(name, unit=unit))

    def watch(self, name: str, *, unit: str | None = None) -> Iterator[Any]:
        return self._each(self._unit.watch(name, unit=unit))

    def progress(self, id: str, *, backend: str) -> Iterator[Any]:
        return self._each(self._unit.progress(id, backend=backend))

    def is_alive(self, unit: str) -> bool:
        return self._loop.run(self._unit.is_alive(unit))

    @property
    def statistics(self) -> Statistics:
        return self._unit.statistics

    def close(self, grace_s: float = GRACE_S) -> None:
        """As the asyncio unit; what waits in other threads ends. Closing twice is fine."""
        if self._loop.runs:
            try:
                self._loop.run(self._unit.close(grace_s))
            finally:
                self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._unit)

    def _each(self, items: AsyncIterator[T]) -> Iterator[T]:
        async def following() -> list[T]:
            """The next one, if there is one."""
            try:
                return [await anext(items)]
            except StopAsyncIteration:
                return []

        try:
            while found := self._loop.run(following()):
                yield found[0]
        finally:
            with contextlib.suppress(MufConnectionLost):
                self._loop.run(items.aclose())  # type: ignore[attr-defined]
