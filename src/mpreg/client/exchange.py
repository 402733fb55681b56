"""Questions out, answers in, over whichever connection there is: the part of the client that every call goes through.

Invariant: a call that nobody awaits any more is neither waiting nor open on a connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from mpreg.client.calls import Call, Waiting
from mpreg.client.connection import Connection, Handler
from mpreg.client.expiry import Expiry
from mpreg.client.settings import ClientSettings
from mpreg.errors import MpregError, ResourceError, TransportError
from mpreg.transport import Link
from mpreg.wire.encoding import Encoding
from mpreg.wire.message import Message


class Exchange:
    def __init__(self, settings: ClientSettings) -> None:
        loop = asyncio.get_running_loop()
        self._time = loop.time
        self._create_future = loop.create_future
        self._encoding: Encoding = settings.encoding
        self._in_flight_max = settings.in_flight_max
        # Half of what a link may hold is for large calls. All small ones that can be under way fit into the other half,
        # so that they need not be counted.
        self._large_bytes_max = settings.limits.waiting_bytes_max // 2
        self._small_bytes_max = self._large_bytes_max // settings.in_flight_max
        self._waiting = Waiting(settings.waiting_max, settings.waiting_bytes_max)
        self.queue = self._waiting.queue
        self._connections: set[Connection] = set()
        self._expiry = Expiry(loop, self._under_way)
        self._closed = False
        self.handlers: dict[type[Message], Handler] = {}
        self.current: Connection | None = None
        """Where new calls go."""

    @property
    def open_calls(self) -> int:
        """Sent and not answered."""
        return sum(len(connection.open) for connection in self._connections)

    @property
    def waiting_calls(self) -> int:
        return len(self.queue)

    async def ask(self, u: str, data: bytes, timeout_s: float, is_rpc: bool) -> Call:
        """The call with its answer in `future`. Raises what kept the answer from coming."""
        call = self.send(u, data, timeout_s, is_rpc)
        try:
            await call.future
        except BaseException:
            self.abandon(call)
            raise
        return call

    def send(self, u: str, data: bytes, timeout_s: float, is_rpc: bool) -> Call:
        """Send it, or let it wait to be sent. Whoever awaits its `future` abandons the call if that raises."""
        expires = self._time() + timeout_s
        call = Call(u, data, self._create_future(), timeout_s, expires, is_rpc)
        connection = self.current
        if connection is None or self.queue or len(connection.open) >= self._in_flight_max:
            if self._closed:
                raise _closed(False)
            self._waiting.add(call)
        else:
            if len(data) > self._small_bytes_max:
                self._check_room(connection, data)
            connection.send(call, self._encoding)
        if expires < self._expiry.next:
            self._expiry.watch(expires)
        return call

    def abandon(self, call: Call) -> None:
        """Nobody waits for its answer any more, if there was none."""
        if call.connection is None:
            self._waiting.discard(call)
        else:
            call.connection.abandon(call, self._encoding)

    def tell(self, data: bytes) -> None:
        """A message that nobody answers. Raises `TRANSPORT_CONNECTION_LOST` if there is no connection now."""
        connection = self.current
        if connection is None:
            raise TransportError("TRANSPORT_CONNECTION_LOST", "There is no connection to a node at the moment")
        self._check_room(connection, data)
        connection.link.send(data, self._encoding)

    def accept(self, link: Link) -> Connection:
        """The handler of a new link."""
        connection = Connection(link, self)
        self._connections.add(connection)
        return connection

    def use(self, connection: Connection) -> None:
        """From now on new calls go there, those that wait first."""
        self.current = connection
        self._pump()

    async def close(self) -> None:
        """Every call that is under way fails with `TRANSPORT_CLOSED`."""
        self._closed = True
        self.current = None
        self._expiry.close()
        while self.queue:
            self._waiting.take().fail(_closed(False))
        connections = list(self._connections)
        for connection in connections:
            for call in connection.open.values():
                call.fail(_closed(None))
            connection.link.close()
        for connection in connections:
            await connection.link.wait_closed()

    # What a connection tells.

    def has_room(self) -> None:
        if self.queue:
            self._pump()

    def turned_away(self, call: Call) -> None:
        call.connection = None
        self._waiting.put_back(call)

    def leaving(self, connection: Connection) -> None:
        if connection is self.current:
            self.current = None

    def ended(self, connection: Connection) -> None:
        self.leaving(connection)
        self._connections.discard(connection)

    def _under_way(self) -> Iterator[Call]:
        yield from self.queue
        for connection in self._connections:
            yield from connection.open.values()

    def _check_room(self, connection: Connection, data: bytes) -> None:
        """Refuse one call rather than let the link close itself for all of them."""
        waiting = connection.link.waiting
        if waiting and waiting + len(data) > self._large_bytes_max:
            raise ResourceError(
                "RESOURCE_EXHAUSTED",
                f"{waiting} bytes wait for the node to read them; this message would make more than"
                f" {self._large_bytes_max} of them",
                limit=self._large_bytes_max,
            )

    def _pump(self) -> None:
        """Send what waits, as far as there is room."""
        connection = self.current
        while connection is not None and self.queue and len(connection.open) < self._in_flight_max:
            call = self._waiting.take()
            if call.future.done():
                continue
            try:
                self._check_room(connection, call.data)
                connection.send(call, self._encoding)
            except MpregError as error:
                call.fail(error)


def _closed(state_changed: bool | None) -> TransportError:
    return TransportError("TRANSPORT_CLOSED", "This client is closed", state_changed=state_changed)
