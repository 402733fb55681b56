"""Who takes messages on this node: a subscription of a connection, or one request to receive."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from mpreg.errors import MpregError
from mpreg.queues.records import Cast, Claimed, Held, Taker
from mpreg.transport.session import Session
from mpreg.wire.encoding import Encoding

WAITING_BYTES_MAX: Final = 8_000_000
BEHIND_S: Final = 0.05


class Consumer(Protocol):
    subscriber_id: str
    session: Session
    left: bool
    """There may be more for it in the store than it had room for when that was last asked."""

    def taker(self, now: float) -> Taker | None:
        """What it would take; None without room."""

    def room_at(self) -> float:
        """Without room: when there will be some though nobody acknowledges."""

    def take(self, claimed: Sequence[Claimed], casts: dict[str, Cast], now_ms: int) -> None: ...

    def end(self, error: MpregError | None) -> None:
        """Nothing more comes; with an error: because of that."""


Push = Callable[["Subscription", Sequence[Claimed], "dict[str, Cast]", int], None]
Ended = Callable[["Subscription", MpregError], None]


class Subscription:
    """At most `prefetch` messages are with it; each counts until it is settled or its lease ends."""

    def __init__(
        self,
        subscriber_id: str,
        session: Session,
        encoding: Encoding,
        patterns: tuple[str, ...],
        *,
        prefetch: int,
        visibility_ms: int,
        auto_acknowledge: bool,
        batch: bool,
        in_flight: int,
        owner: str,
        by: str,
        push: Push,
        ended: Ended,
    ) -> None:
        self.subscriber_id = subscriber_id
        self.session = session
        self.encoding = encoding
        self.patterns = patterns
        self.auto_acknowledge = auto_acknowledge
        self.batch = batch
        self.owner = owner
        self.by = by
        self.left = True
        self.held: dict[str, Held] = {}
        """By message id."""
        self._prefetch = prefetch
        self._visibility_ms = visibility_ms
        self._before = in_flight
        self._push = push
        self._ended = ended
        self._time = asyncio.get_running_loop().time

    def taker(self, now: float) -> Taker | None:
        room = self._prefetch - self._before - len(self.held)
        if room <= 0:
            self._forget_lost(now)
            room = self._prefetch - self._before - len(self.held)
        if room <= 0 or self.session.closed or self._is_behind():
            return None
        return Taker(self.subscriber_id, room, self.patterns, self._visibility_ms)

    def room_at(self) -> float:
        if self._is_behind():
            return self._time() + BEHIND_S
        return min((held.until for held in self.held.values()), default=math.inf)

    def _is_behind(self) -> bool:
        """It reads slowly: what it has not read yet would only wait in this node."""
        return self.session.link.waiting > WAITING_BYTES_MAX

    def take(self, claimed: Sequence[Claimed], casts: dict[str, Cast], now_ms: int) -> None:
        if not self.auto_acknowledge:
            now = self._time()
            for one in claimed:
                until = now + (one.lease_until_ms - now_ms) / 1000
                for message_id, held in zip(one.message_ids, one.held, strict=True):
                    held.until = until
                    self.held[message_id] = held
        self._push(self, claimed, casts, now_ms)

    def settled(self, message_id: str, receipt: str) -> None:
        """One less is with it."""
        held = self.held.get(message_id)
        if held is not None and receipt in ("", held.receipt):
            del self.held[message_id]
        elif held is None and self._before:
            self._before -= 1

    def extended(self, message_id: str, by_s: float) -> None:
        held = self.held.get(message_id)
        if held is not None:
            held.until = self._time() + by_s

    def end(self, error: MpregError | None) -> None:
        self.held.clear()
        if error is not None:
            self._ended(self, error)

    def _forget_lost(self, now: float) -> None:
        for message_id in [each for each, held in self.held.items() if held.until <= now]:
            del self.held[message_id]


class Pull:
    """Answered once: by the first messages there are, or by none when its time is over."""

    def __init__(
        self,
        subscriber_id: str,
        session: Session,
        patterns: tuple[str, ...],
        *,
        most: int,
        visibility_ms: int,
        answer: Callable[[Sequence[Claimed], dict[str, Cast], int], None],
        fail: Callable[[MpregError], None],
    ) -> None:
        self.subscriber_id = subscriber_id
        self.session = session
        self.patience: asyncio.TimerHandle | None = None
        self.left = True
        self._taker = Taker(subscriber_id, most, patterns, visibility_ms)
        self._answer = answer
        self._fail = fail
        self.done = False

    def taker(self, now: float) -> Taker | None:
        return None if self.done or self.session.closed else self._taker

    def room_at(self) -> float:
        return math.inf

    def take(self, claimed: Sequence[Claimed], casts: dict[str, Cast], now_ms: int) -> None:
        self._finish()
        self._answer(claimed, casts, now_ms)

    def end(self, error: MpregError | None) -> None:
        if self.done:
            return
        self._finish()
        if error is None:
            self._answer((), {}, 0)
        else:
            self._fail(error)

    def _finish(self) -> None:
        self.done = True
        if self.patience is not None:
            self.patience.cancel()
