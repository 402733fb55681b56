"""A received message in the hands of a program."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from mpreg.errors import QueueError
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.queues import Delivery, Settlement

T = TypeVar("T")
V = TypeVar("V")

_MODULES: Final[dict[Encoding, Any]] = {Encoding.JSON: msgspec.json, Encoding.MSGPACK: msgspec.msgpack}
REASON_MAX: Final = 500


class Settles(Protocol):
    """What a message asks of its receiver."""

    queue_name: str

    def settle(self, message: Message[Any], settlement: Settlement) -> Future[str]: ...


def _or(value: V | UnsetType, default: V) -> V:
    return default if value is UNSET else value


class Message(Generic[T]):
    """Acknowledge it: with `async with message`, or with exactly one of `ack`, `retry`, `dead_letter`.

    These raise `QUEUE_STALE_RECEIPT` if the message is not in this program's hands any more, and then nothing has
    changed.
    """

    __slots__ = ("_delivery", "_receiver", "is_settled", "lease_s", "lease_until", "payload", "receipt", "renew_at")

    def __init__(self, receiver: Settles, delivery: Delivery, payload: T, receipt: str, lease_s: float) -> None:
        self._receiver = receiver
        self._delivery = delivery
        self.payload = payload
        self.receipt = receipt
        """Empty: there is nothing to settle."""
        self.lease_s = lease_s
        self.lease_until = _or(delivery.acknowledgment_timeout, 0.0)
        """In seconds since 1970 by the store's clock; later with each renewal."""
        self.renew_at = 0.0
        self.is_settled = not receipt
        """Nothing can or need be done with it any more."""

    @property
    def message_id(self) -> str:
        return self._delivery.message_id

    @property
    def queue_name(self) -> str:
        return self._receiver.queue_name

    @property
    def topic(self) -> str:
        return self._delivery.topic

    @property
    def delivery_guarantee(self) -> str:
        return self._delivery.delivery_guarantee

    @property
    def retry_count(self) -> int:
        return _or(self._delivery.retry_count, 0)

    @property
    def max_retries(self) -> int:
        return _or(self._delivery.max_retries, 0)

    @property
    def headers(self) -> dict[str, str]:
        return _or(self._delivery.headers, {})

    @property
    def priority(self) -> int:
        return _or(self._delivery.priority, 0)

    @property
    def sent_at(self) -> float:
        """When the store took it, in seconds since 1970."""
        return _or(self._delivery.sent_at, 0.0)

    def ack(self) -> Future[str]:
        """It is done. On its way even if nobody awaits it, as with all of these."""
        return self._settle(Settlement(message_id=self.message_id, receipt=self.receipt))

    def retry(self, after: float | None = None, reason: str = "") -> Future[str]:
        """Once more, `after` so many seconds, or after a backoff: `retry`; or `dead_letter` if it was tried as often as
        allowed."""
        return self._settle(
            Settlement(
                message_id=self.message_id,
                receipt=self.receipt,
                success=False,
                retry_after_seconds=UNSET if after is None else after,
                reason=reason[:REASON_MAX],
            )
        )

    def dead_letter(self, reason: str) -> Future[str]:
        """No more attempts."""
        return self._settle(
            Settlement(
                message_id=self.message_id,
                receipt=self.receipt,
                success=False,
                dead_letter=True,
                reason=reason[:REASON_MAX],
            )
        )

    def release(self) -> Future[str]:
        """Back, as if it had never been delivered."""
        return self._settle(Settlement(message_id=self.message_id, receipt=self.receipt, success=False, release=True))

    def _settle(self, settlement: Settlement) -> Future[str]:
        if self.is_settled:
            raise QueueError(
                "QUEUE_STALE_RECEIPT",
                f"the message {self.message_id!r} is settled already, or its lease could not be kept",
                message_id=self.message_id,
            )
        return self._receiver.settle(self, settlement)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_settled:
            return
        if error is None:
            await self.ack()
        elif isinstance(error, Exception):
            await self.retry(reason=f"{type(error).__name__}: {error}")
        else:  # cancelled: nobody says that it failed
            await self.release()

    def __repr__(self) -> str:
        return f"<Message {self.message_id} {self.topic}>"


class Peeked(msgspec.Struct, frozen=True, kw_only=True):
    message_id: str
    topic: str
    payload: Any
    priority: int
    retry_count: int
    headers: dict[str, str]
    sent_at: float
    why: dict[str, Any] | None
    """Of a dead letter."""


@lru_cache(maxsize=256)
def _decoder(payload_type: Any, encoding: Encoding) -> Callable[[Raw], Any]:
    decode: Callable[[Raw], Any] = _MODULES[encoding].Decoder(payload_type).decode
    return decode


def encode_payload(payload: Any, encoding: Encoding) -> Raw:
    """Raises `QUEUE_INVALID`."""
    try:
        return Raw(_MODULES[encoding].encode(payload))
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise QueueError("QUEUE_INVALID", f"payload: it can't be encoded: {problem}", field="payload") from None


def decode_payload(raw: Raw, encoding: Encoding, payload_type: Any) -> Any:
    """Raises `QUEUE_INVALID` with the path of what does not fit."""
    try:
        return _decoder(payload_type, encoding)(raw)
    except msgspec.ValidationError as problem:
        text, path = codec.path_of(problem)
        raise QueueError("QUEUE_INVALID", f"the payload: {text} at {path}", field="payload", path=path) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise QueueError("QUEUE_INVALID", f"the payload can't be read: {problem}", field="payload") from None
