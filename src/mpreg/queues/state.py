"""The verbs of one queue: each is one script, so each is done as a whole or not at all, and any process may call it.

Nothing here keeps state. `at_ms` replaces the store's clock in tests; 0 is the store's own (R-Q7).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mpreg.errors import QueueError
from mpreg.queues.keys import NAMES, SEEN, channel_of, keys_of
from mpreg.queues.message import Message
from mpreg.queues.names import DEAD, check_queue_name, invalid
from mpreg.queues.parcels import (
    Asked,
    Parcels,
    asked_of,
    batch_from,
    ends_from,
    extending_args,
    ids_from,
    outcomes_from,
    parcels_of,
    peeked_from,
    settling_args,
)
from mpreg.queues.records import (
    COUNTERS,
    Batch,
    Cast,
    Lease,
    Outcome,
    Packed,
    Peeked,
    Sent,
    Statistics,
    Taker,
)
from mpreg.queues.scripts import (
    ACKNOWLEDGE,
    CLAIM,
    CREATE,
    EXTEND,
    FIRE,
    PEEK,
    PURGE,
    REDRIVE,
    RENEW,
    SEND,
    SETTLE,
    STATS,
    SUBSCRIBE,
    UNSUBSCRIBE,
)
from mpreg.queues.settings import DEAD_LETTERS_KEPT_S, QueueSettings, settings_of

if TYPE_CHECKING:
    import asyncio

    from mpreg.store import Script, Store

CLAIM_MAX: Final = 500
SEND_MAX: Final = 1_000
REDRIVE_MAX: Final = 500
SUBSCRIBERS_MAX: Final = 1_000
OTHERWISE: Final = -2


class Queue:
    """One queue by its name. Cheap to make, and stateless but for the prefix of its message ids."""

    def __init__(self, store: Store, name: str) -> None:
        self.name = check_queue_name(name)
        self._store = store
        self._base = name.removesuffix(DEAD)
        self._keys = keys_of(name)
        dead = () if name.endswith(DEAD) else keys_of(name + DEAD)
        self._all = self._keys + dead
        self.channel = channel_of(name)

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    def not_found(self) -> QueueError:
        return QueueError("QUEUE_NOT_FOUND", f"there is no queue {self.name!r}", queue_name=self.name)

    def in_use(self, subscriber: str) -> QueueError:
        return QueueError(
            "QUEUE_EXISTS",
            f"subscriber_id: {subscriber!r} subscribes to {self.name!r} already",
            field="subscriber_id",
            queue_name=self.name,
        )

    def _run(self, script: Script, *args: Any, keys: Sequence[bytes] = ()) -> asyncio.Future[Any]:
        return self._store.send_script(script, (*self._all, *keys), args)

    async def create(self, settings: QueueSettings, *, at_ms: int = 0) -> bool:
        """True if it was made, False if it is there with the same settings; else QUEUE_EXISTS."""
        check_queue_name(self.name, dead_letters=False)
        settings.check()
        await NAMES.at().add(self._store, self.name)
        wanted = [part for pair in settings.stored().items() for part in pair]
        prefix = f"msg-{secrets.token_hex(4)}-"
        kept = int(settings.enable_dead_letter_queue)
        made = await self._run(CREATE, at_ms, prefix, kept, int(DEAD_LETTERS_KEPT_S * 1000), *wanted)
        if made in (0, 1):
            return bool(made)
        there = settings_of({k.decode(): v.decode() for k, v in zip(made[::2], made[1::2], strict=True)})
        differing = [field for field in settings.__struct_fields__ if getattr(there, field) != getattr(settings, field)]
        raise QueueError(
            "QUEUE_EXISTS",
            f"the queue {self.name!r} exists with other settings: {', '.join(differing)}",
            queue_name=self.name,
            fields=differing,
        )

    async def settings(self) -> QueueSettings:
        stored = list(QueueSettings().stored())
        values = await self._store.command("HMGET", self._keys[0], *stored)
        if values[0] is None:
            raise self.not_found()
        return settings_of({name: value.decode() for name, value in zip(stored, values, strict=True)})

    # --- messages ---------------------------------------------------------------------------------------------------

    async def send(
        self, messages: Sequence[Message], *, deduplicate: bool = False, at_ms: int = 0
    ) -> list[Sent | QueueError]:
        """One answer a message: taken in, a duplicate, or the error that says why not."""
        packed = [
            Packed(
                message.check().meta(),
                message.payload,
                message.digest() if deduplicate or message.deduplication_id is not None else "",
            )
            for message in messages
        ]
        parcels = parcels_of(packed)
        return self.sent(parcels, await self.send_parcels(parcels, deduplicates=deduplicate, at_ms=at_ms))

    def send_parcels(self, parcels: Parcels, *, deduplicates: bool, at_ms: int = 0) -> asyncio.Future[list[Any] | int]:
        """For `sent`. The queue itself knows whether it deduplicates: `OTHERWISE` if that was taken wrongly."""
        seen = [SEEN.key(queue=self._base, digest=digest) for digest in parcels.digests]
        return self._run(SEND, at_ms, len(self._all) + 1, int(deduplicates), *parcels.args, keys=seen)

    def sent(self, parcels: Parcels, reply: list[Any] | int) -> list[Sent | QueueError]:
        """One answer a message."""
        if isinstance(reply, int):
            raise self.not_found()
        prefix = reply[1].decode()
        answers: list[Sent | QueueError] = []
        for many, answer in zip(parcels.many, reply[2:], strict=True):
            if isinstance(answer, list):
                names = tuple(name.decode() for name in answer[1:])
                answers.append(Sent(prefix + answer[0].decode(), subscribers=names))
            elif answer[:1] in b"DFQ":
                answers += self._not_taken(answer.decode(), prefix, many)
            else:
                answers += map(Sent, ids_from(prefix, answer.decode(), many))
        return answers

    def _not_taken(self, answer: str, prefix: str, many: int) -> list[Sent | QueueError]:
        """Not all of them were stored anew."""
        if answer[0] == "D":
            return [Sent(prefix + answer[1:], duplicate=True)]
        if answer[0] == "Q":
            return [
                QueueError(
                    "QUEUE_INVALID",
                    f"required_acknowledgments: only {answer[1:]} subscribers could acknowledge",
                    field="required_acknowledgments",
                    limit=int(answer[1:]),
                )
            ]
        taken = int(answer[1:5], 16) if len(answer) > 1 else 0
        stored: list[Sent | QueueError] = [*map(Sent, ids_from(prefix, answer[5:], taken))] if taken else []
        full = QueueError("QUEUE_FULL", f"the queue {self.name!r} is full", queue_name=self.name)
        return stored + [full] * (many - taken)

    async def claim(self, takers: Sequence[Taker], *, at_ms: int = 0) -> Batch:
        """Messages for several subscribers, each with a lease; what is there is shared out evenly."""
        return self.claimed(takers, await self.send_claim(takers, at_ms=at_ms))

    def send_claim(self, takers: Sequence[Taker], *, at_ms: int = 0) -> asyncio.Future[list[Any] | int]:
        """For `claimed`."""
        args: list[Any] = []
        left = CLAIM_MAX
        for taker in takers:
            most = min(taker.most, left)
            if most == 0:
                break
            left -= most
            wanted = () if "#" in taker.patterns else taker.patterns
            args += (taker.subscriber, most, taker.visibility_ms, len(wanted), *wanted)
        return self._run(CLAIM, at_ms, *args)

    def claimed(self, takers: Sequence[Taker], reply: list[Any] | int) -> Batch:
        if isinstance(reply, int):
            raise self.not_found()
        return batch_from(reply, takers)

    async def fire(self, messages: Sequence[tuple[str, bytes]], *, at_ms: int = 0) -> list[Sent]:
        """Topic and body of each: said to who subscribes now, by the queue's channel; nothing is kept."""
        reply = await self._run(FIRE, at_ms, *(part for message in messages for part in message))
        if reply == -1:
            raise self.not_found()
        prefix = reply[0].decode()
        return [
            Sent(prefix + number.decode(), subscribers=tuple(name.decode() for name in names))
            for number, *names in reply[1:]
        ]

    async def casts(self, message_ids: Sequence[str]) -> list[Cast | None]:
        """How broadcasts stand; None for one that is over."""
        found = await self._store.command("HMGET", self._keys[8], *(self.number_of(id_) for id_ in message_ids))
        return [None if packed is None else msgspec.msgpack.decode(packed, type=Cast) for packed in found]

    async def acknowledge(self, leases: Sequence[Lease], *, at_ms: int = 0) -> list[Outcome]:
        asked = asked_of(leases)
        return self.outcomes(asked, await self.send_acknowledge(asked, at_ms=at_ms))

    def send_acknowledge(self, asked: Asked, *, at_ms: int = 0) -> asyncio.Future[list[Any] | int]:
        """For `outcomes`."""
        return self._run(ACKNOWLEDGE, at_ms, *settling_args(asked))

    def outcomes(self, asked: Asked, reply: list[Any] | int) -> list[Outcome]:
        if isinstance(reply, int):
            raise self.not_found()
        return outcomes_from(asked, reply[1:])

    async def extend(self, leases: Sequence[Lease], by_ms: int, *, at_ms: int = 0) -> list[int]:
        """When each lease ends now, in ms; 0 for one that is not the holder's any more."""
        asked = asked_of(leases)
        reply = await self._run(EXTEND, at_ms, *extending_args(asked, by_ms))
        if reply == -1:
            raise self.not_found()
        return ends_from(asked, reply[1:])

    @staticmethod
    def number_of(message_id: str) -> str:
        return message_id.rpartition("-")[2]

    # --- the queue --------------------------------------------------------------------------------------------------

    async def settle(self, *, at_ms: int = 0) -> int:
        """Let time pass in a queue where nothing else happens; when to come again, 0: never."""
        reply = await self._run(SETTLE, at_ms)
        if reply == -1:
            raise self.not_found()
        next_ms: int = reply[1]
        return next_ms

    async def statistics(self, *, at_ms: int = 0) -> Statistics:
        names = [*QueueSettings().stored(), "prefix"]
        reply = await self._run(STATS, at_ms, *names)
        if reply == -1:
            raise self.not_found()
        now_ms, ready, delayed, in_flight, subscribers, counts, values = reply
        told = {name: value.decode() for name, value in zip(names, values, strict=True)}
        return Statistics(
            now_ms=now_ms,
            ready=ready,
            delayed=delayed,
            in_flight=in_flight,
            subscribers=subscribers,
            counters=dict(zip(COUNTERS, counts[-len(COUNTERS) :], strict=True)),
            settings=settings_of(told),
            prefix=told["prefix"],
        )

    async def dead_letters(self) -> int:
        """How many there are."""
        dead: int = await self._store.command("ZCARD", keys_of(self._base + DEAD)[2])
        return dead

    async def peek(
        self, most: int, *, subscriber: str = "", patterns: Iterable[str] = (), at_ms: int = 0
    ) -> list[Peeked]:
        most = min(most, CLAIM_MAX)
        reply = await self._run(PEEK, at_ms, most, subscriber, *patterns)
        if reply == -1:
            raise self.not_found()
        return peeked_from(reply, most)

    async def purge(self, *, at_ms: int = 0) -> int:
        """Remove all messages, those in flight too; how many they were."""
        return await self._empty(0, at_ms)

    async def delete(self, *, at_ms: int = 0) -> int:
        """Remove the queue and its dead letters; how many messages it had."""
        if self.name.endswith(DEAD):
            raise invalid("queue_name", "dead letters are deleted with their queue; purge them instead")
        gone = await self._empty(1, at_ms)
        await NAMES.at().remove(self._store, self.name)
        return gone

    async def _empty(self, delete: int, at_ms: int) -> int:
        gone: int = await self._run(PURGE, at_ms, delete)
        if gone == -1:
            raise self.not_found()
        return gone

    async def redrive(self, most: int, *, at_ms: int = 0) -> tuple[int, int]:
        """Dead letters back into their queue: how many went, how many are left."""
        if self.name.endswith(DEAD):
            raise invalid("queue_name", f"name the queue that the dead letters came from, without {DEAD}")
        reply = await self._run(REDRIVE, at_ms, min(most, REDRIVE_MAX))
        if reply == -1:
            raise self.not_found()
        return reply[0], reply[1]

    # --- subscribers ------------------------------------------------------------------------------------------------

    async def subscribe(
        self, subscriber: str, owner: str, by: str, lease_ms: int, patterns: Iterable[str], *, at_ms: int = 0
    ) -> None:
        """Be known as a subscriber for `lease_ms`. Broadcasts are kept for who is known. `by` is the session; the same
        `owner` may come back by another one, and then only that one renews and ends it."""
        made = await self._run(SUBSCRIBE, at_ms, subscriber, owner, by, lease_ms, SUBSCRIBERS_MAX, *patterns)
        if made == -1:
            raise self.not_found()
        if made == 0:
            raise self.in_use(subscriber)
        if made == -2:
            raise QueueError(
                "QUEUE_FULL",
                f"the queue {self.name!r} has {SUBSCRIBERS_MAX} subscribers",
                queue_name=self.name,
                limit=SUBSCRIBERS_MAX,
            )

    async def renew(self, by: str, lease_ms: int, subscribers: Sequence[str], *, at_ms: int = 0) -> list[str]:
        """Those of them that are not this session's any more."""
        reply = await self._run(RENEW, at_ms, by, lease_ms, *subscribers)
        if reply == -1:
            raise self.not_found()
        return [name for name, mine in zip(subscribers, reply[1:], strict=True) if not mine]

    async def unsubscribe(self, subscriber: str, by: str, *, at_ms: int = 0) -> bool:
        return bool(await self._run(UNSUBSCRIBE, at_ms, subscriber, by))
