"""Topics as a node offers them: publish, subscribe, unsubscribe, for connections and for the node's own program.

The seam between backlog and live messages has no gap and no duplicate (R-P4), because both are decided in one turn:
a message is matched when it is published, so it is either in the backlog before the subscription is there, or
delivered to it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import UNSET

from mpreg.errors import ProtocolError, PubSubError, ResourceError
from mpreg.pubsub.across import Across
from mpreg.pubsub.backlog import Backlog
from mpreg.pubsub.delivery import Delivery
from mpreg.pubsub.exchange import Exchange, Interest, Subscription
from mpreg.pubsub.gathering import Gathering
from mpreg.pubsub.limits import PubSubLimits
from mpreg.pubsub.message import Published
from mpreg.pubsub.outbox import Load, Outbox, Receiver
from mpreg.pubsub.patterns import Levels, parse_pattern, split_topic
from mpreg.pubsub.payload import encode_payload
from mpreg.pubsub.publishing import Publishing
from mpreg.pubsub.rates import Rates
from mpreg.pubsub.requests import backlog_seconds_of, patterns_of
from mpreg.pubsub.run import Run, runs_of
from mpreg.pubsub.statistics import PubSubStatistics
from mpreg.pubsub.subscriber import Handler, InThread, Subscriber
from mpreg.pubsub.turns import Turns
from mpreg.transport.session import Session
from mpreg.wire.encoding import Encoding
from mpreg.wire.message import Message
from mpreg.wire.pubsub import (
    BATCH_MESSAGES_MAX,
    PubSubAck,
    PubSubMessage,
    PubSubPublish,
    PubSubSubscribe,
    PubSubSubscription,
    PubSubUnsubscribe,
)

TRIM_S: Final = 5.0
"""How often a backlog is trimmed to which nothing is added."""
SLOW_GRACE_S: Final = 2.0
"""For subscribers to read what waits for them when the node stops; less if its grace time is shorter."""
LOOKS_MAX: Final = 100
"""Looks at the rates of topics at the same time."""


class PubSubService:
    def __init__(self, origin: str, limits: PubSubLimits, clock: Callable[[], float] = time.time) -> None:
        """`origin` names this run of this node in positions and message ids; a restart is another one."""
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._clock = clock
        self._statistics = PubSubStatistics()
        self._exchange: Exchange[Receiver] = Exchange(limits)
        self._backlog = Backlog(limits)
        self._delivery = Delivery(origin)
        self._turns = Turns()
        self._publishing = Publishing(
            origin, self._exchange, self._backlog, self._delivery, self._statistics, limits, clock
        )
        self._loads: dict[Session, Load] = {}
        self._subscribers: list[Subscriber] = []
        self._thread = threading.get_ident()
        self._trimming: asyncio.TimerHandle | None = None
        self._across: Across | None = None

    def in_cluster(self) -> Across:
        """From now on topics reach other nodes, as the cluster tells of them."""
        self._across = Across(
            self._exchange.interest,
            self._publishing,
            self._backlog,
            self._delivery.flush,
            self._statistics,
            self._limits,
            self._clock,
        )
        return self._across

    @property
    def handlers(self) -> dict[type[Message], Callable[[Session, Any, Encoding], None]]:
        """For the node's dispatch."""
        return {
            PubSubPublish: self.publish_message,
            PubSubSubscribe: self.subscribe,
            PubSubUnsubscribe: self.unsubscribe,
        }

    @property
    def interest(self) -> Interest:
        return self._exchange.interest

    # What connections ask.

    def publish_message(self, session: Session, request: PubSubPublish, encoding: Encoding) -> None:
        messages = _messages_of(request)
        before = self._publishing.bytes
        duplicates = self._publish(messages, encoding)
        self._turns.took(session.link, self._publishing.bytes - before)
        if request.ack:
            last = messages[-1].message_id
            assert last is not UNSET
            ack = PubSubAck(operation_id=last, u=request.u, duplicates=duplicates or UNSET)
            session.send(ack, encoding)

    def subscribe(self, session: Session, request: PubSubSubscribe, encoding: Encoding) -> None:
        asked = request.subscription
        patterns = patterns_of(asked, self._limits)
        backlog_s = backlog_seconds_of(asked, self._limits)
        load = self._loads.get(session) or Load()
        own = [] if backlog_s is None else self._recent(patterns, backlog_s, asked)
        runs = list(runs_of(self._publishing.origin, own, backlog=True))
        self._check_replay(load, runs)
        outbox = Outbox(
            session.link,
            load,
            asked.subscription_id,
            encoding,
            self._limits,
            self._statistics,
            self._delivery.slow,
            batch=asked.batch,
            drop_oldest=asked.on_slow == "drop_oldest",
        )
        self._exchange.subscribe(Subscription(asked.subscription_id, session, patterns, outbox))
        self._loads[session] = load
        if self._across is not None and self._across.nodes and (request.ack or backlog_s is not None):
            self._subscribe_everywhere(session, request, encoding, patterns, backlog_s, own, outbox)
            return
        if request.ack:
            positions = {self._publishing.origin: self._publishing.seq}
            gap = self._has_gap(asked) or UNSET
            ack = PubSubAck(operation_id=asked.subscription_id, u=request.u, positions=positions, gap=gap)
            session.send(ack, encoding)
        if runs:
            outbox.replay(runs)
            self._delivery.watch_slow()

    def _subscribe_everywhere(
        self,
        session: Session,
        request: PubSubSubscribe,
        encoding: Encoding,
        patterns: tuple[Levels, ...],
        backlog_s: float | None,
        own: list[Published],
        outbox: Outbox,
    ) -> None:
        """The subscription is acknowledged when every node knows of it, and begins with the backlog of them all."""
        across, asked = self._across, request.subscription
        assert across is not None
        position = self._publishing.seq
        own_gap = asked.after is not UNSET and asked.after.get(self._publishing.origin, 0) < self._backlog.dropped_up_to

        def finished(gathering: Gathering) -> None:
            positions = {self._publishing.origin: position, **gathering.positions}
            unknown = asked.after is not UNSET and bool(asked.after.keys() - positions.keys())
            if request.ack and not session.closed:
                gap = gathering.gap or own_gap or unknown or UNSET
                ack = PubSubAck(operation_id=asked.subscription_id, u=request.u, positions=positions, gap=gap)
                session.send(ack, encoding)
            outbox.release(runs_of(self._publishing.origin, gathering.messages(), backlog=True))
            self._delivery.watch_slow()

        gathering = across.gather(patterns, asked, backlog_s, own, finished)
        outbox.hold(gathering.left_out)

    def unsubscribe(self, session: Session, request: PubSubUnsubscribe, encoding: Encoding) -> None:
        self._delivery.flush()  # what came before it belongs to the subscription
        self._exchange.unsubscribe(session, request.subscription_id).receiver.end()
        if not self._exchange.owned_by(session):
            self._loads.pop(session, None)
        if request.ack:
            session.send(PubSubAck(operation_id=request.subscription_id, u=request.u), encoding)

    def closed(self, session: Session) -> None:
        """The connection is gone, and its subscriptions with it (R-P3)."""
        for subscription in self._exchange.forget(session):
            subscription.receiver.end()
        self._loads.pop(session, None)

    # For the node's own program and its other services.

    def publish(
        self, topic: str, payload: Any, *, headers: Mapping[str, Any] | None = None, reply_to: str | None = None
    ) -> None:
        """From any thread. Raises `PUBSUB_INVALID_TOPIC` or `PUBSUB_UNENCODABLE_PAYLOAD`."""
        message = PubSubMessage(topic=topic, payload=encode_payload(payload, Encoding.MSGPACK))
        if headers:
            message.headers = dict(headers)
            encode_payload(message.headers, Encoding.MSGPACK)
        if reply_to is not None:
            split_topic(reply_to)
            message.reply_to = reply_to
        if threading.get_ident() == self._thread:
            self._publish([message], Encoding.MSGPACK)
        else:
            self._publish_from_thread(message)

    def announce(self, topic: str, payload: Any) -> None:
        """To who subscribes at this node, now: it crosses to no other one, and is in no backlog."""
        targets = self._exchange.match(topic)
        if targets:
            data = encode_payload(payload, Encoding.MSGPACK)
            now, seq = self._clock(), self._publishing.seq
            message = PubSubMessage(topic=topic, payload=data, message_id=secrets.token_hex(8), timestamp=now)
            self._delivery.add(targets, Published(seq, now, Encoding.MSGPACK, message, len(memoryview(data))))

    def add_handler(self, handler: Handler, in_thread: InThread) -> None:
        """A function of the node's program, until `drain`. Sync ones are called by `in_thread`."""
        subscriber = Subscriber(handler, self._statistics, in_thread, self.publish)
        id = f"{self._publishing.origin}/{len(self._subscribers)}/{handler.name}"
        self._exchange.subscribe(Subscription(id, self, handler.patterns, subscriber))
        self._subscribers.append(subscriber)

    async def topic_rates(self, pattern: str, seconds: float, depth: int) -> dict[str, Any]:
        """What is published here within the next seconds, by the first levels of the topic."""
        if len(self._publishing.taps) >= LOOKS_MAX:
            raise ResourceError("RESOURCE_EXHAUSTED", f"{LOOKS_MAX} look at the rates already", limit=LOOKS_MAX)
        wanted = parse_pattern(pattern)
        assert wanted is not None, "not an exact one"
        rates = Rates(wanted, depth)
        begun = self._loop.time()
        self._publishing.taps.append(rates.add)
        try:
            await asyncio.sleep(seconds)
            return rates.report(self._loop.time() - begun)
        finally:
            self._publishing.taps.remove(rates.add)

    @property
    def looks(self) -> int:
        """How many look at the rates."""
        return len(self._publishing.taps)

    def add_receiver(self, id: str, owner: Any, patterns: tuple[Levels, ...], receiver: Receiver) -> None:
        """A subscription within this process."""
        self._exchange.subscribe(Subscription(id, owner, patterns, receiver))

    def remove_receiver(self, owner: Any, id: str) -> None:
        self._exchange.unsubscribe(owner, id).receiver.end()

    @property
    def statistics(self) -> PubSubStatistics:
        return self._statistics

    def report(self) -> dict[str, Any]:
        """The note's `topic_exchange`."""
        return {
            "active_subscriptions": len(self._exchange),
            **self._statistics.report(),
            "slow_subscribers": len(self._delivery.slow),
            "hot_topics": self._exchange.hot_topics,
            "trie_stats": self._exchange.trie_stats(),
            "backlog_stats": self._backlog.stats(self._clock()),
            "handlers": [subscriber.report() for subscriber in self._subscribers],
        }

    async def drain(self, grace_s: float) -> None:
        """Handlers get nothing new and finish what has come; subscribers get what is on its way to them."""
        self._delivery.flush()
        for subscription in self._exchange.forget(self):
            subscription.receiver.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                for subscriber in self._subscribers:
                    await subscriber.finished()
        for subscriber in self._subscribers:
            await subscriber.stop()
        await self._delivery.drain(min(grace_s, SLOW_GRACE_S))

    def close(self) -> None:
        self._delivery.flush()
        self._delivery.close()
        if self._across is not None:
            self._across.close()
        if self._trimming is not None:
            self._trimming.cancel()

    def _publish_from_thread(self, message: PubSubMessage) -> None:
        """Waits until the loop has done it, so that a thread does not get ahead of it without a bound."""
        done = concurrent.futures.Future[None]()

        def publish() -> None:
            try:
                self._publish([message], Encoding.MSGPACK)
                done.set_result(None)
            except Exception as problem:  # noqa: BLE001 - it belongs to the thread
                done.set_exception(problem)

        self._loop.call_soon_threadsafe(publish)
        done.result()

    def _publish(self, messages: list[PubSubMessage], encoding: Encoding) -> int:
        duplicates = self._publishing.publish(messages, encoding)
        if self._trimming is None and len(self._backlog):
            self._trimming = self._loop.call_later(TRIM_S, self._trim)
        return duplicates

    def _trim(self) -> None:
        self._backlog.trim(self._clock())
        self._trimming = self._loop.call_later(TRIM_S, self._trim) if len(self._backlog) else None

    def _recent(self, patterns: tuple[Levels, ...], backlog_s: float, asked: PubSubSubscription) -> list[Published]:
        now, origin = self._clock(), self._publishing.origin
        self._backlog.trim(now)
        after = 0 if asked.after is UNSET else asked.after.get(origin, 0)
        return self._backlog.matching(patterns, now - backlog_s, after)

    def _check_replay(self, load: Load, runs: list[Run]) -> None:
        limit = self._limits.replayed_messages_max
        if runs and load.replayed and load.replayed + sum(map(len, runs)) > limit:
            raise PubSubError(
                "PUBSUB_LIMIT",
                f"{load.replayed} messages of the backlog wait to be read by this connection; the limit is {limit}",
                field="get_backlog",
                limit=limit,
                retryable=True,
            )

    def _has_gap(self, asked: PubSubSubscription) -> bool:
        if asked.after is UNSET:
            return False
        after = asked.after.get(self._publishing.origin)
        return after is None or after < self._backlog.dropped_up_to


def _messages_of(request: PubSubPublish) -> list[PubSubMessage]:
    if request.messages is UNSET:
        if request.message is UNSET:
            raise _missing("A publish needs `message` or `messages`", "$.message")
        return [request.message]
    if request.message is not UNSET:
        raise _missing("A publish has either `message` or `messages`", "$.messages")
    if not request.messages:
        raise _missing("`messages` is empty", "$.messages")
    if len(request.messages) > BATCH_MESSAGES_MAX:
        raise PubSubError(
            "PUBSUB_LIMIT",
            f"{len(request.messages)} messages in one publish; the limit is {BATCH_MESSAGES_MAX}",
            field="messages",
            limit=BATCH_MESSAGES_MAX,
        )
    return request.messages


def _missing(text: str, path: str) -> ProtocolError:
    return ProtocolError("PROTOCOL_INVALID_MESSAGE", text, path=path)
