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
from mpreg.queues.message import Message, unpack, with_key
from mpreg.queues.names import DEAD, check_queue_name, invalid
from mpreg.queues.records import (
    COUNTERS,
    OUTCOMES,
    VERBS,
    Batch,
    Cast,
    Claimed,
    Lease,
    Outcome,
    Packed,
    Peeked,
    Sent,
    Statistics,
    Taker,
    split_receipt,
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
ID_LENGTH: Final = 10
"""Of an id within its queue; in a copy of a broadcast, `@` and the subscriber follow."""


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
                message.rest(),
                message.digest() if deduplicate or message.deduplication_id is not None else "",
            )
            for message in messages
        ]
        reply = await self.send_packed(packed, deduplicates=deduplicate, at_ms=at_ms)
        return self.sent(reply)

    def send_packed(
        self, messages: Sequence[Packed], *, deduplicates: bool, at_ms: int = 0
    ) -> asyncio.Future[list[Any] | int]:
        """For `sent`. The queue itself knows whether it deduplicates: `OTHERWISE` if that was taken wrongly."""
        args: list[bytes] = []
        seen: list[bytes] = []
        for message in messages:
            if message.digest:
                seen.append(SEEN.key(queue=self._base, digest=message.digest))
                args += (with_key(message.meta, len(seen)), message.rest)
            else:
                args += (message.meta, message.rest)
        return self._run(SEND, at_ms, len(self._all) + 1, int(deduplicates), *args, keys=seen)

    def sent(self, reply: list[Any] | int) -> list[Sent | QueueError]:
        if isinstance(reply, int):
            raise self.not_found()
        prefix = reply[1].decode()
        return [self._sent(answer, prefix) for answer in reply[2:]]

    def _sent(self, answer: Any, prefix: str) -> Sent | QueueError:
        if isinstance(answer, list):
            return Sent(prefix + answer[0].decode(), subscribers=tuple(name.decode() for name in answer[1:]))
        kind = answer[:1]
        if kind == b"F":
            return QueueError("QUEUE_FULL", f"the queue {self.name!r} is full", queue_name=self.name)
        if kind == b"Q":
            there = int(answer[1:])
            return QueueError(
                "QUEUE_INVALID",
                f"required_acknowledgments: only {there} subscribers could acknowledge",
                field="required_acknowledgments",
                limit=there,
            )
        if kind == b"D":
            return Sent(prefix + answer[1:].decode(), duplicate=True)
        return Sent(prefix + answer.decode())

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
        prefix = reply[2].decode()
        claimed = [
            Claimed(
                reply[n],
                takers[reply[n]].subscriber,
                prefix + (id_ := reply[n + 1].decode())[:ID_LENGTH],
                f"{id_}/{reply[n + 3]}/{reply[n + 2]}",
                reply[n + 2],
                reply[n + 4],
                reply[n + 5],
                unpack(reply[n + 6]),
            )
            for n in range(3, len(reply), 7)
        ]
        return Batch(reply[0], reply[1], claimed)

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
        return self.outcomes(await self.send_acknowledge(leases, at_ms=at_ms))

    def send_acknowledge(self, leases: Sequence[Lease], *, at_ms: int = 0) -> asyncio.Future[list[Any] | int]:
        """For `outcomes`."""
        args: list[Any] = []
        for lease in leases:
            id_, delivery = self._delivery(lease)
            args += (id_, delivery, lease.holder, VERBS[lease.verb], lease.delay_ms, lease.reason)
        return self._run(ACKNOWLEDGE, at_ms, *args)

    def outcomes(self, reply: list[Any] | int) -> list[Outcome]:
        if isinstance(reply, int):
            raise self.not_found()
        return [OUTCOMES[answer] for answer in reply[1:]]

    async def extend(self, leases: Sequence[Lease], by_ms: int, *, at_ms: int = 0) -> list[int]:
        """When each lease ends now, in ms; 0 for one that is not the holder's any more."""
        args: list[Any] = []
        for lease in leases:
            args += (*self._delivery(lease), lease.holder, by_ms)
        reply = await self._run(EXTEND, at_ms, *args)
        if reply == -1:
            raise self.not_found()
        ends: list[int] = reply[1:]
        return ends

    @staticmethod
    def number_of(message_id: str) -> str:
        return message_id.rpartition("-")[2]

    def _delivery(self, lease: Lease) -> tuple[str, int]:
        """The id within the queue and the number of the delivery; what can't be read holds nothing."""
        if not lease.receipt:
            return self.number_of(lease.message_id), 0
        id_, number, _ = split_receipt(lease.receipt)
        return (id_, number) if id_[:ID_LENGTH] == self.number_of(lease.message_id) else ("", 0)

    # --- the queue --------------------------------------------------------------------------------------------------

    async def settle(self, *, at_ms: int = 0) -> int:
        """Let time pass in a queue where nothing else happens; when to come again, 0: never."""
        reply = await self._run(SETTLE, at_ms)
        if reply == -1:
            raise self.not_found()
        next_ms: int = reply[1]
        return next_ms

    async def statistics(self, *, at_ms: int = 0) -> Statistics:
        reply = await self._run(STATS, at_ms)
        if reply == -1:
            raise self.not_found()
        flat = {k.decode(): v.decode() for k, v in zip(reply[5][::2], reply[5][1::2], strict=True)}
        return Statistics(
            now_ms=reply[0],
            ready=reply[1],
            delayed=reply[2],
            in_flight=reply[3],
            subscribers=reply[4],
            counters={name: int(flat.get(name, 0)) for name in COUNTERS},
            settings=settings_of(flat),
            prefix=flat["prefix"],
        )

    async def dead_letters(self) -> int:
        """How many there are."""
        dead: int = await self._store.command("ZCARD", keys_of(self._base + DEAD)[2])
        return dead

    async def peek(
        self, most: int, *, subscriber: str = "", patterns: Iterable[str] = (), at_ms: int = 0
    ) -> list[Peeked]:
        reply = await self._run(PEEK, at_ms, min(most, CLAIM_MAX), subscriber, *patterns)
        if reply == -1:
            raise self.not_found()
        return [
            Peeked(
                reply[1].decode() + reply[n].decode().partition("@")[0],
                reply[n + 1],
                unpack(reply[n + 2]),
                msgspec.json.decode(reply[n + 3]) if reply[n + 3] else None,
            )
            for n in range(2, len(reply), 4)
        ]

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
