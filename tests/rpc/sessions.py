"""What the service talks to in these tests: a session that keeps what is sent, and a loop whose time we set."""

from __future__ import annotations

import asyncio
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from mpreg.deadlines import Deadlines
from mpreg.errors import ResourceError
from mpreg.rpc import LocalPlacement, Registry, RpcLimits, RpcService, Threads
from mpreg.transport.session import Session
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.limits import CLIENT, Limits
from mpreg.wire.rpc import Command, Rpc, RpcCancel, RpcResponse


class RecordingLink:
    """Encodes nothing away: every message that is sent is kept, and can be waited for."""

    url = "test://"

    def __init__(self, limits: Limits = CLIENT) -> None:
        self.limits = limits
        self.waiting = 0
        self.closed = False
        self.sent: list[tuple[bytes, Encoding]] = []
        self._changed = asyncio.Event()

    def send(self, message: bytes, encoding: Encoding) -> None:
        if len(message) > self.limits.message_bytes_max:
            raise ResourceError("RESOURCE_MESSAGE_TOO_LARGE", "too large", limit=self.limits.message_bytes_max)
        if not self.closed:
            self.sent.append((message, encoding))
            self._changed.set()

    async def until(self, count: int) -> None:
        while len(self.sent) < count:
            self._changed.clear()
            await self._changed.wait()

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self, error: Any = None) -> None:
        self.closed = True

    async def wait_closed(self) -> None: ...


class SetClock:
    """Stands in for the loop of `Deadlines`: its timers fire when `advance` says that it is time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._timers: dict[int, tuple[float, Any]] = {}
        self._next = 0

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Any) -> Any:
        self._next += 1
        number = self._next
        self._timers[number] = (when, call)

        class Handle:
            @staticmethod
            def cancel() -> None:
                self._timers.pop(number, None)

        return Handle

    @property
    def timers(self) -> int:
        return len(self._timers)

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while due := sorted((when, number) for number, (when, _) in self._timers.items() if when <= until):
            when, number = due[0]
            self.now = max(self.now, when)
            self._timers.pop(number)[1]()
        self.now = until


class Bench:
    """A service with the functions given, and one connection to it."""

    def __init__(self, *functions: Any, debug: bool = False, limits: RpcLimits | None = None, **link: Any) -> None:
        loop = asyncio.get_running_loop()
        self.registry = Registry()
        for function in functions:
            self.registry.add(function)
        self.limits = limits or RpcLimits(threads_max=4)
        self.clock = SetClock()
        self.deadlines = Deadlines(self.clock)  # type: ignore[arg-type]
        self.threads = Threads(loop, self.limits.threads_max, self.limits.threads_waiting_max)
        self.service = RpcService(LocalPlacement(self.registry, self.threads, debug), self.deadlines, self.limits)
        self.link = RecordingLink(Limits(**link))
        self.session = Session(self.link)
        self._u = 0

    def send(
        self,
        *cmds: Command,
        u: str | None = None,
        encoding: Encoding = Encoding.JSON,
        session: Any = None,
        **fields: Any,
    ) -> str:
        self._u += 1
        u = u or f"u{self._u}"
        raw = codec.encode(Rpc(u, cmds, **fields), encoding)
        message = codec.decode(raw, encoding)
        assert isinstance(message, Rpc)
        with outside_of_any_task():  # where a link calls from
            self.service.request(session or self.session, message, encoding)
        return u

    def cancel(self, u: str) -> None:
        self.service.cancel(self.session, RpcCancel(u), Encoding.JSON)

    async def answers(self, count: int) -> list[RpcResponse]:
        await self.link.until(count)
        found = [codec.decode(message, encoding) for message, encoding in self.link.sent]
        assert all(isinstance(answer, RpcResponse) for answer in found)
        return found  # type: ignore[return-value]

    async def answer(self) -> RpcResponse:
        """The one answer to what was sent since the last."""
        answers = await self.answers(1)
        assert len(answers) == 1
        self.link.sent.clear()
        return answers[0]

    async def call(self, fun: str, *args: Any, encoding: Encoding = Encoding.JSON, **kwargs: Any) -> Any:
        """The result, or the error's body."""
        self.send(cmd(fun, *args, **kwargs), encoding=encoding)
        answer = await self.answer()
        return answer.error if answer.error is not None else codec.decode_value(answer.r, encoding)

    async def request(self, *cmds: Command, **fields: Any) -> Any:
        self.send(*cmds, **fields)
        answer = await self.answer()
        return answer.error if answer.error is not None else codec.decode_value(answer.r, Encoding.JSON)

    async def quiet(self) -> None:
        """Until nothing runs; then nothing may be left of any request."""
        while len(self.service):
            await asyncio.sleep(0)
        assert self.service._open == {}
        assert len(self.deadlines) == 0


@contextmanager
def outside_of_any_task() -> Iterator[None]:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is None:
        yield
        return
    _leave_task(loop, task)
    try:
        yield
    finally:
        _enter_task(loop, task)


def cmd(fun: str, *args: Any, name: str = "c", locs: tuple[str, ...] = (), **kwargs: Any) -> Command:
    """A command whose arguments are plain data; they become raw bytes when the message is encoded."""
    given: Any = list(args) if args else msgspec.UNSET
    named: Any = kwargs or msgspec.UNSET
    return Command(name, fun, given, named, locs)
