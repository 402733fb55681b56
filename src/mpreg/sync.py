"""The client for scripts and notebooks: the asyncio client in a thread of its own, each call waited for.

    with mpreg.sync.connect("tcp://127.0.0.1:6668") as client:
        client.call("greet", "world")

Calls may come from many threads at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from mpreg import client as asynchronous
from mpreg.client import ClientSettings, CommandBuilder, command
from mpreg.client.connecting import DEFAULT_URL
from mpreg.client.sources import Target
from mpreg.errors import TransportError
from mpreg.loop_thread import LoopThread
from mpreg.transport import TlsFiles

__all__ = ["Client", "command", "connect"]

T = TypeVar("T")


def _closed(state_changed: bool | None) -> TransportError:
    return TransportError("TRANSPORT_CLOSED", "This client is closed", state_changed=state_changed)


def connect(
    target: Target = DEFAULT_URL,
    *,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    tls: TlsFiles | None = None,
    settings: ClientSettings | None = None,
    **changes: Any,
) -> Client:
    """As `mpreg.connect`; the client is connected when this returns. Close it, or use it with `with`."""
    loop = LoopThread(_closed)
    try:
        connecting = asynchronous.connect(target, token=token, headers=headers, tls=tls, settings=settings, **changes)
        return Client(loop, loop.run(connecting.connected()))
    except BaseException:
        loop.stop()
        raise


class Client:
    """Made by `connect`."""

    def __init__(self, loop: LoopThread, client: asynchronous.Client) -> None:
        self._loop = loop
        self._client = client

    @overload
    def call(
        self,
        fun: str,
        /,
        *args: Any,
        locs: Iterable[str] = ...,
        timeout: float | None = ...,
        result_type: type[T],
        **kwargs: Any,
    ) -> T: ...

    @overload
    def call(
        self,
        fun: str,
        /,
        *args: Any,
        locs: Iterable[str] = ...,
        timeout: float | None = ...,
        result_type: Any = ...,
        **kwargs: Any,
    ) -> Any: ...

    def call(
        self,
        fun: str,
        /,
        *args: Any,
        locs: Iterable[str] = (),
        timeout: float | None = None,
        result_type: Any = Any,
        **kwargs: Any,
    ) -> Any:
        """The result of one function. Ctrl-C cancels it, on the node too."""
        return self._loop.run(
            self._client.call(fun, *args, locs=locs, timeout=timeout, result_type=result_type, **kwargs)
        )

    @overload
    def request(self, wanted: CommandBuilder[T], /, *, timeout: float | None = ...) -> T: ...

    @overload
    def request(self, wanted: Sequence[CommandBuilder[Any]], /, *, timeout: float | None = ...) -> list[Any]: ...

    def request(
        self, wanted: CommandBuilder[Any] | Sequence[CommandBuilder[Any]], /, *, timeout: float | None = None
    ) -> Any:
        """The results of commands that may use each other's, in one round trip."""
        return self._loop.run(self._client.request(wanted, timeout=timeout))

    @property
    def is_connected(self) -> bool:
        return self._client.is_connected

    @property
    def url(self) -> str | None:
        """Of the node that this client is connected to at the moment."""
        return self._client.url

    @property
    def calls_open(self) -> int:
        """Sent and not answered."""
        return self._client.calls_open

    def close(self) -> None:
        """Calls of other threads fail with `TRANSPORT_CLOSED`. Closing twice is fine."""
        if self._loop.runs:
            try:
                self._loop.run(self._client.close())
            finally:
                self._loop.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._client)
