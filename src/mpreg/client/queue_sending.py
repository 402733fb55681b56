"""The sender's half of queues: what is sent in one turn of the event loop leaves as one frame for each queue, and each
message learns for itself whether it is stored."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET

from mpreg.client.calls import Call
from mpreg.client.exchange import Exchange
from mpreg.client.publishing import array_header
from mpreg.errors import MpregError, ProtocolError, QueueError, TimedOut
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.error import ErrorResponse, to_exception
from mpreg.wire.message import Message as WireMessage
from mpreg.wire.queues import MANY_MAX, Outgoing, SendMessagesReply, SendResult

BATCH_BYTES: Final = 1_000_000
SHAPES_MAX: Final = 1_000
AGAIN_S: Final = 0.2
"""Before a send is repeated of which nobody knows whether it is stored."""


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The store has the message."""

    message_id: str
    durability: str
    """What the store may lose in a crash: `memory` everything, `everysec` the last second, `always` nothing; `none` of
    what is stored nowhere."""
    duplicate: bool = False
    """`message_id` is that of the first one."""
    delivered_to: tuple[str, ...] = ()
    """Of a broadcast, a quorum or fire and forget: who gets it."""


class Entry(msgspec.Struct, gc=False):
    data: bytes
    future: Future[Receipt]
    deadline: float
    again: bool
    """Sending it twice does no harm."""


class QueueSending:
    def __init__(self, exchange: Exchange, new_u: Callable[[], str], encoding: Encoding, timeout_s: float) -> None:
        self._exchange = exchange
        self._new_u = new_u
        self._encoding = encoding
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        module: Any = msgspec.json if encoding is Encoding.JSON else msgspec.msgpack
        self._encode: Callable[[Any], bytes] = module.Encoder().encode
        self._null = codec.NULL[encoding]
        self._shapes: dict[tuple[Any, ...], tuple[bytes, bytes]] = {}
        """Most programs send in a few ways: what stands around the payload then."""
        self._turn: dict[str, list[Entry]] = {}

    def send(
        self,
        queue: str,
        payload: Any,
        topic: str,
        guarantee: str,
        priority: int,
        group: str,
        delay: float,
        ttl: float | None,
        visibility: float | None,
        ack_timeout: float | None,
        max_retries: int | None,
        required: int | None,
        dedup_id: str | None,
        headers: Mapping[str, str] | None,
        timeout: float | None,
    ) -> Future[Receipt]:
        try:
            data = self._encode(payload)
        except (TypeError, ValueError, OverflowError, RecursionError) as problem:
            raise QueueError("QUEUE_INVALID", f"payload: it can't be encoded: {problem}", field="payload") from None
        how = (topic, guarantee, priority, group, delay, ttl, visibility, ack_timeout, max_retries, required)
        if dedup_id is None and not headers:
            before, behind = self._shapes.get(how) or self._remember(how)
        else:
            before, behind = self._around(how, dedup_id, dict(headers or {}))
        data = before + data + behind
        future: Future[Receipt] = self._loop.create_future()
        deadline = self._loop.time() + (self._timeout_s if timeout is None else timeout)
        self._add(queue, Entry(data, future, deadline, dedup_id is not None))
        return future

    def _remember(self, how: tuple[Any, ...]) -> tuple[bytes, bytes]:
        around = self._around(how, None, {})
        if not all(map(_is_plain, how, _PLAIN)):
            return around  # equal to others and yet not the same: the node will say what is wrong with it
        if len(self._shapes) >= SHAPES_MAX:
            self._shapes.clear()
        self._shapes[how] = around
        return around

    def _around(self, how: tuple[Any, ...], dedup_id: str | None, headers: dict[str, str]) -> tuple[bytes, bytes]:
        """What stands before and behind the payload of an `Outgoing`."""
        topic, guarantee, priority, group, delay, ttl, visibility, ack_timeout, max_retries, required = how
        outgoing = Outgoing(
            message_payload=self._null,
            topic=topic,
            delivery_guarantee=guarantee,
            priority=priority,
            group=group,
            delay_seconds=delay,
            message_ttl_seconds=ttl,
            visibility_timeout_seconds=visibility,
            acknowledgment_timeout_seconds=ack_timeout,
            max_retries=max_retries,
            required_acknowledgments=required,
            deduplication_id=dedup_id,
            headers=headers,
        )
        try:
            before, _, behind = self._encode(outgoing).partition(bytes(self._null))  # the payload is the first field
        except (TypeError, ValueError, OverflowError) as problem:
            raise QueueError("QUEUE_INVALID", f"it can't be encoded: {problem}") from None
        return before, behind

    def flush(self) -> None:
        """Send what came in this turn."""
        turn, self._turn = self._turn, {}
        for queue, entries in turn.items():
            part: list[Entry] = []
            size = 0
            for entry in entries:
                if part and (len(part) == MANY_MAX or size + len(entry.data) > BATCH_BYTES):
                    self._send(queue, part)
                    part, size = [], 0
                part.append(entry)
                size += len(entry.data)
            self._send(queue, part)

    def _add(self, queue: str, entry: Entry) -> None:
        if not self._turn:
            self._loop.call_soon(self.flush)
        self._turn.setdefault(queue, []).append(entry)

    def _send(self, queue: str, entries: list[Entry]) -> None:
        u = self._new_u()
        data = self._frame(u, queue, [entry.data for entry in entries])
        left_s = max(entry.deadline for entry in entries) - self._loop.time()
        try:
            if left_s <= 0:
                raise TimedOut("TIMEOUT_EXCEEDED", "The message could not be sent in time")
            call = self._exchange.send(u, data, left_s, False)
        except MpregError as error:
            self._failed(queue, entries, error)
        else:
            call.future.add_done_callback(lambda done: self._answered(queue, entries, call, done))

    def _frame(self, u: str, queue: str, messages: list[bytes]) -> bytes:
        encode = self._encode
        if self._encoding is Encoding.JSON:
            head = b'{"type":"send_messages","u":' + encode(u) + b',"payload":{"queue_name":' + encode(queue)
            return head + b',"messages":[' + b",".join(messages) + b"]}}"
        head = b"\x83" + encode("type") + encode("send_messages") + encode("u") + encode(u) + encode("payload")
        head += b"\x82" + encode("queue_name") + encode(queue) + encode("messages")
        return head + array_header(len(messages)) + b"".join(messages)

    def _answered(self, queue: str, entries: list[Entry], call: Call, done: Future[WireMessage]) -> None:
        error: MpregError
        try:
            reply = done.result()
        except MpregError as problem:
            self._exchange.abandon(call)
            self._failed(queue, entries, problem)
            return
        except asyncio.CancelledError:
            return
        if isinstance(reply, SendMessagesReply) and len(reply.payload.results) == len(entries):
            for entry, result in zip(entries, reply.payload.results, strict=True):
                self._stored(queue, entry, result, reply.payload.durability)
            return
        if isinstance(reply, ErrorResponse):
            error = to_exception(reply.error)
        else:
            error = ProtocolError("PROTOCOL_UNEXPECTED_MESSAGE", "The answer is none to a send", state_changed=None)
        self._failed(queue, entries, error)

    def _stored(self, queue: str, entry: Entry, result: SendResult, durability: str) -> None:
        if result.error is not UNSET:
            self._failed(queue, [entry], to_exception(result.error))
        elif not entry.future.done():
            names = () if result.delivered_to is UNSET else result.delivered_to
            entry.future.set_result(
                Receipt(result.message_id, result.durability or durability, result.duplicate, names)
            )

    def _failed(self, queue: str, entries: list[Entry], error: MpregError) -> None:
        now = self._loop.time()
        again = [entry for entry in entries if self._may_repeat(entry, error, now)]
        if again:
            self._loop.call_later(AGAIN_S, self._again, queue, again)
        for entry in entries:
            if entry not in again and not entry.future.done():
                entry.future.set_exception(_copy(error))

    def _may_repeat(self, entry: Entry, error: MpregError, now: float) -> bool:
        """Nobody knows whether it is stored, and the store would know it again."""
        unknown = error.state_changed is None and error.retryable
        return entry.again and unknown and not entry.future.done() and entry.deadline > now + AGAIN_S

    def _again(self, queue: str, entries: list[Entry]) -> None:
        for entry in entries:
            self._add(queue, entry)


_INT, _FLOAT, _TEXT = (int, type(None)), (float, int, type(None)), (str,)
_PLAIN: Final = (_TEXT, _TEXT, _INT, _TEXT, _FLOAT, _FLOAT, _FLOAT, _FLOAT, _INT, _INT)


def _is_plain(value: Any, types: tuple[type, ...]) -> bool:
    return type(value) in types


def _copy(error: MpregError) -> MpregError:
    """One for each who is told: an exception collects the traceback of who raises it."""
    return error.__class__(
        error.code,
        error.message,
        type=error.type,
        retryable=error.retryable,
        state_changed=error.state_changed,
        **error.details,
    )
