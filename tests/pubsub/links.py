"""A link whose peer reads when the test says so, and what was sent on it, decoded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mpreg.errors import MpregError, ResourceError
from mpreg.pubsub import PubSubLimits, PubSubService
from mpreg.transport import Peer as LinkPeer
from mpreg.transport.session import Session
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.limits import CLIENT, Limits
from mpreg.wire.pubsub import (
    PubSubAck,
    PubSubMessage,
    PubSubNotification,
    PubSubPattern,
    PubSubPublish,
    PubSubSubscribe,
    PubSubSubscription,
    PubSubUnsubscribe,
)
from mpreg.wire.received import Message, as_list, decoder


class FakeLink:
    """`reads` False: what is sent stays in `waiting`."""

    url = "fake:"
    peer = LinkPeer("fake:")

    def __init__(self, limits: Limits = CLIENT) -> None:
        self.limits = limits
        self.reads = True
        self.waiting = 0
        self.closed = False
        self.error: MpregError | None = None
        self.reading_paused = 0
        self.frames: list[tuple[bytes, Encoding]] = []

    def send(self, message: bytes, encoding: Encoding) -> None:
        if self.closed:
            return
        if len(message) > self.limits.message_bytes_max:
            raise ResourceError("RESOURCE_MESSAGE_TOO_LARGE", "too large for this link")
        self.frames.append((message, encoding))
        if not self.reads:
            self.waiting += len(message)

    def read_all(self) -> None:
        self.waiting = 0

    def pause_reading(self) -> None:
        self.reading_paused += 1

    def resume_reading(self) -> None:
        self.reading_paused -= 1

    def close(self, error: MpregError | None = None) -> None:
        self.closed = True
        self.error = error

    async def wait_closed(self) -> None:
        return


class Peer:
    """One connection to a service, in one encoding."""

    def __init__(self, service: PubSubService, encoding: Encoding = Encoding.JSON, limits: Limits = CLIENT) -> None:
        self.service = service
        self.encoding = encoding
        self.link = FakeLink(limits)
        self.session = Session(self.link)

    def publish(self, *topics: str, payload: Any = None, **fields: Any) -> None:
        raw = codec.encode_value(payload, self.encoding)
        messages = [PubSubMessage(topic=topic, payload=raw, **fields) for topic in topics]
        request = PubSubPublish(message=messages[0]) if len(messages) == 1 else PubSubPublish(messages=messages)
        self.service.publish_message(self.session, request, self.encoding)

    def publish_payloads(self, topic: str, *payloads: Any) -> None:
        messages = [
            PubSubMessage(topic=topic, payload=codec.encode_value(payload, self.encoding)) for payload in payloads
        ]
        self.service.publish_message(self.session, PubSubPublish(messages=messages), self.encoding)

    def subscribe(self, id: str, *patterns: str, ack: bool = False, **fields: Any) -> None:
        subscription = PubSubSubscription(
            subscription_id=id, patterns=tuple(PubSubPattern(pattern) for pattern in patterns), **fields
        )
        request = PubSubSubscribe(subscription=subscription, ack=ack)
        self.service.subscribe(self.session, request, self.encoding)

    def unsubscribe(self, id: str) -> None:
        self.service.unsubscribe(self.session, PubSubUnsubscribe(subscription_id=id), self.encoding)

    def leave(self) -> None:
        self.service.closed(self.session)

    @property
    def received(self) -> Iterator[PubSubNotification | PubSubAck]:
        for data, encoding in self.link.frames:
            message = codec.decode(data, encoding)
            assert isinstance(message, PubSubNotification | PubSubAck)
            yield message

    @property
    def notifications(self) -> list[PubSubNotification]:
        return [message for message in self.received if isinstance(message, PubSubNotification)]

    def got(self, id: str) -> list[Message[Any]]:
        """The messages of one subscription, in the order in which they came."""
        found: list[Message[Any]] = []
        for notification in self.notifications:
            if notification.subscription_id == id:
                raw = notification.messages
                if not raw:
                    assert notification.message
                    raw = as_list(notification.message, self.encoding)
                messages, invalid = decoder(Any, self.encoding)(raw)
                assert not invalid
                found += messages
        return found

    def payloads(self, id: str) -> list[Any]:
        return [message.payload for message in self.got(id)]

    def topics(self, id: str) -> list[str]:
        return [message.topic for message in self.got(id)]


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def new_service(clock: Clock | None = None, **limits: Any) -> PubSubService:
    return PubSubService("here", PubSubLimits(**limits), clock or Clock())
