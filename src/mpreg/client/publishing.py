"""The publisher's half of the client: what is published in one turn of the event loop leaves as one batch."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, Raw

from mpreg.client.exchange import Exchange
from mpreg.errors import MpregError, PubSubError, TimedOut, TransportError
from mpreg.pubsub.patterns import split_topic
from mpreg.wire.encoding import Encoding
from mpreg.wire.error import ErrorResponse, to_exception
from mpreg.wire.pubsub import BATCH_MESSAGES_MAX, PubSubAck, PubSubMessage, PubSubPublish

BATCH_BYTES: Final = 48 * 1024
"""A batch is sent when it has reached this, or at the end of the turn."""
AHEAD_BYTES: Final = 256 * 1024
"""Past this many bytes that the node has not read, a publisher waits."""
DRAIN_S: Final = 0.001
TOPICS_KNOWN_MAX: Final = 4_096

_ENCODE: Final = {
    Encoding.JSON: msgspec.json.Encoder().encode,
    Encoding.MSGPACK: msgspec.msgpack.Encoder().encode,
}
_OPENING: Final = {
    Encoding.JSON: b'{"role":"pubsub-publish","messages":[',
    Encoding.MSGPACK: b"\x82\xa4role\xaepubsub-publish\xa8messages",
}


class Publishing:
    def __init__(self, exchange: Exchange, new_u: Callable[[], str], token: str, encoding: Encoding) -> None:
        self._loop = asyncio.get_running_loop()
        self._exchange = exchange
        self._new_u = new_u
        self._publisher = f"{socket.gethostname()[:200]}-{token}"
        self._next_id = itertools.count(1).__next__
        self._token = token
        self._encoding = encoding
        self._encode = _ENCODE[encoding]
        self._topics: set[str] = set()
        self._parts: list[bytes] = []
        self._size = 0
        self._scheduled = False
        self._is_ahead = False
        """The node is behind with reading."""
        self._queueing = 0
        self._turn = asyncio.Lock()
        """Publishers that wait for the node go on in the order in which they came."""

    async def publish(self, topic: str, payload: Any, headers: Mapping[str, Any] | None, reply_to: str | None) -> None:
        """Hand one message to the connection. Waits only while the node is far behind with reading."""
        if not self._is_ahead and not self._queueing:
            self._hand_over(topic, payload, headers, reply_to)
            return
        self._queueing += 1
        try:
            async with self._turn:
                await self._drained()
                self._hand_over(topic, payload, headers, reply_to)
        finally:
            self._queueing -= 1

    def _hand_over(self, topic: str, payload: Any, headers: Mapping[str, Any] | None, reply_to: str | None) -> None:
        if topic not in self._topics:
            self.check(topic)
        connection = self._exchange.current
        if connection is None:
            raise TransportError("TRANSPORT_CONNECTION_LOST", "There is no connection to a node at the moment")
        if headers is None and reply_to is None:
            message = PubSubMessage(topic=topic, payload=payload)
        else:
            message = self._message(topic, payload, headers, reply_to)
        try:
            data = self._encode(message)
        except (TypeError, ValueError, OverflowError, RecursionError) as problem:
            raise _unencodable(problem) from None
        if len(data) >= BATCH_BYTES:  # alone, so that its failure is its own
            self.flush()
        self._parts.append(data)
        self._size += len(data)
        if self._size >= BATCH_BYTES or len(self._parts) >= BATCH_MESSAGES_MAX:
            self.flush()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._end_turn)

    async def publish_surely(
        self, topic: str, payload: Any, headers: Mapping[str, Any] | None, reply_to: str | None, timeout_s: float
    ) -> None:
        """Publish once, and return when a node has it. When the connection breaks before its acknowledgement came, the
        message is sent again; the node knows it by its id (R-P6)."""
        self.check(topic)
        message = self._message(topic, payload, headers, reply_to)
        message.publisher = self._publisher
        message.message_id = f"{self._token}-{self._next_id()}"
        u = self._new_u()
        try:
            data = self._encode(PubSubPublish(u=u, message=message, ack=True))
        except (TypeError, ValueError, OverflowError, RecursionError) as problem:
            raise _unencodable(problem) from None
        self.flush()
        deadline = self._loop.time() + timeout_s
        while True:
            left_s = deadline - self._loop.time()
            if left_s <= 0:
                raise _timed_out(timeout_s)
            try:
                call = await self._exchange.ask(u, data, left_s, False)
            except TransportError as error:
                if error.code != "TRANSPORT_CONNECTION_LOST":
                    raise
                continue
            reply = call.future.result()
            if isinstance(reply, ErrorResponse):
                raise to_exception(reply.error)
            assert isinstance(reply, PubSubAck)
            return

    def flush(self) -> None:
        """Send what was published in this turn. Raises `RESOURCE_MESSAGE_TOO_LARGE` for a large message, which is
        never sent with others."""
        parts = self._parts
        if not parts:
            return
        if self._encoding is Encoding.JSON:
            data = _OPENING[Encoding.JSON] + b",".join(parts) + b"]}"
        else:
            data = b"".join((_OPENING[Encoding.MSGPACK], array_header(len(parts)), *parts))
        self._parts = []
        self._size = 0
        connection = self._exchange.current
        if connection is not None:
            connection.link.send(data, self._encoding)
            self._is_ahead = connection.link.waiting > AHEAD_BYTES

    def _end_turn(self) -> None:
        self._scheduled = False
        self.flush()

    async def _drained(self) -> None:
        """First the loop gets to write at all; then it is a matter of the node."""
        await asyncio.sleep(0)
        while (connection := self._exchange.current) is not None and connection.link.waiting > AHEAD_BYTES:
            await asyncio.sleep(DRAIN_S)
        self._is_ahead = False

    def _message(
        self, topic: str, payload: Any, headers: Mapping[str, Any] | None, reply_to: str | None
    ) -> PubSubMessage:
        if reply_to is not None:
            split_topic(reply_to)
        return PubSubMessage(
            topic=topic,
            payload=cast(Raw, payload),  # the encoder takes whatever is there
            headers=UNSET if not headers else dict(headers),
            reply_to=UNSET if reply_to is None else reply_to,
        )

    def check(self, topic: str) -> None:
        """Raises `PUBSUB_INVALID_TOPIC`."""
        if topic in self._topics:
            return
        split_topic(topic)
        if len(self._topics) >= TOPICS_KNOWN_MAX:
            self._topics.clear()
        self._topics.add(topic)


def array_header(count: int) -> bytes:
    """Of a MessagePack array."""
    if count < 16:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2, "big") if count < 65_536 else b"\xdd" + count.to_bytes(4, "big")


def _unencodable(problem: Exception) -> MpregError:
    return PubSubError("PUBSUB_UNENCODABLE_PAYLOAD", f"The payload can't be encoded: {problem}")


def _timed_out(timeout_s: float) -> MpregError:
    return TimedOut(
        "TIMEOUT_EXCEEDED",
        f"No acknowledgement within {timeout_s:g} s",
        timeout_ms=timeout_s * 1e3,
        state_changed=None,
    )
