"""The verbs of one queue: each is one script, so each is done as a whole or not at all, and any process may call it.

Nothing here keeps state. `at_ms` replaces the store's clock in tests; 0 is the store's own (R-Q7).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from mpreg.errors import QueueError
from mpreg.queues.keys import NAMES, SEEN, channel_of, keys_of
from mpreg.queues.message import Message, Stored, unpack
from mpreg.queues.names import DEAD, check_queue_name, invalid
from mpreg.queues.settings import DEAD_LETTERS_KEPT_S, QueueSettings, settings_of
from mpreg.store import Script

if TYPE_CHECKING:
    import asyncio

    from mpreg.store import Store

CLAIM_MAX: Final = 500
SEND_MAX: Final = 1_000
REDRIVE_MAX: Final = 500
SUBSCRIBERS_MAX: Final = 1_000

_LIBRARY: Final = Script.load("mpreg.queues", "lua/queue.lua").source
_CHOOSE: Final = Script.load("mpreg.queues", "lua/choose.lua").source


def _verb(name: str, *, chooses: bool = False) -> Script:
    verb = Script.load("mpreg.queues", f"lua/{name}.lua").source
    return Script.of(_LIBRARY + (_CHOOSE if chooses else b"") + verb, f"queues.{name}")


CREATE = _verb("create")
SEND = _verb("send")
CLAIM = _verb("claim", chooses=True)
ACKNOWLEDGE = _verb("acknowledge")
EXTEND = _verb("extend")
SETTLE = _verb("settle")
STATS = _verb("stats")
PEEK = _verb("peek", chooses=True)
PURGE = _verb("purge")
REDRIVE = _verb("redrive")
SUBSCRIBE = _verb("subscribe")
UNSUBSCRIBE = _verb("unsubscribe")

Verb = Literal["acknowledge", "retry", "dead_letter"]
Outcome = Literal["acknowledged", "retry", "dead_letter", "expired", "stale"]
_VERBS: Final[dict[Verb, str]] = {"acknowledge": "a", "retry": "r", "dead_letter": "d"}
_OUTCOMES: Final[dict[bytes, Outcome]] = {
    b"a": "acknowledged",
    b"r": "retry",
    b"d": "dead_letter",
    b"e": "expired",
    b"s": "stale",
}


class Sent(msgspec.Struct, frozen=True):
    """What became of one message: taken in, or a duplicate of an earlier one."""

    message_id: str
    duplicate: bool = False
    subscribers: tuple[str, ...] | None = None
    """Of a broadcast or quorum: who will get it."""


class Claimed(msgspec.Struct, frozen=True):
    """One message in someone's hands."""

    message_id: str
    receipt: str
    deliveries: int
    lease_until_ms: int
    extend_until_ms: int
    message: Stored


class Batch(msgspec.Struct, frozen=True):
    now_ms: int
    next_ms: int
    """When to ask again though nothing was sent; 0: never."""
    claimed: list[Claimed]


class Lease(msgspec.Struct, frozen=True):
    """What `acknowledge` and `extend` need to know."""

    message_id: str
    holder: str = ""
    receipt: str = ""
    """Empty: whichever delivery the holder has."""
    verb: Verb = "acknowledge"
    delay_ms: int = 0
    """Of a retry."""
    reason: str = ""


class Peeked(msgspec.Struct, frozen=True):
    message_id: str
    deliveries: int
    message: Stored
    why: dict[str, Any] | None


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    now_ms: int
    ready: int
    delayed: int
    in_flight: int
    subscribers: int
    counters: dict[str, int]
    settings: QueueSettings
    prefix: str


class Queue:
    """One queue by its name. Cheap to make, and stateless but for the prefix of its message ids."""

    def __init__(self, store: Store, name: str) -> None:
        self.name = check_queue_name(name)
        self._store = store
        self._keys = keys_of(name)
        dead = () if name.endswith(DEAD) else keys_of(name + DEAD)
        self._all = self._keys + dead
        self.channel = channel_of(name)
        self._prefix: str | None = None

    def __repr__(self) -> str:
        return f"Queue({self.name!r})"

    def not_found(self) -> QueueError:
        return QueueError("QUEUE_NOT_FOUND", f"there is no queue {self.name!r}", queue_name=self.name)

    def _run(self, script: Script, *args: Any, keys: Sequence[bytes] = ()) -> asyncio.Future[Any]:
        return self._store.send_script(script, (*self._all, *keys), args)

    async def prefix(self) -> str:
        """What message ids of this queue begin with; another one after it was deleted and made again."""
        if self._prefix is None:
            found = await self._store.command("HGET", self._keys[0], "prefix")
            if found is None:
                raise self.not_found()
            self._prefix = found.decode()
        return self._prefix

    async def create(self, settings: QueueSettings, *, at_ms: int = 0) -> bool:
        """True if it was made, False if it is there with the same settings; else QUEUE_EXISTS."""
        check_queue_name(self.name, dead_letters=False)
        settings.check()
        await NAMES.at().add(self._store, self.name)
        wanted = [part for pair in settings.stored().items() for part in pair]
        prefix = f"msg-{secrets.token_hex(4)}-"
        kept = int(settings.enable_dead_letter_queue)
        made = await self._run(CREATE, at_ms, prefix, kept, int(DEAD_LETTERS_KEPT_S * 1000), *wanted)
        if made == 1:
            self._prefix = prefix
            return True
        if made == 0:
            return False
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
        prefix = await self.prefix()
        answers = await self.send_packed(
            [message.check() for message in messages], deduplicate=deduplicate, at_ms=at_ms
        )
        return [self.sent(answer, prefix) for answer in answers]

    async def send_packed(self, messages: Sequence[Message], *, deduplicate: bool, at_ms: int = 0) -> list[Any]:
        """As `send`, but what was checked stays unchecked, and answers are as the script gives them."""
        args: list[bytes] = []
        seen: list[bytes] = []
        for message in messages:
            if deduplicate or message.deduplication_id is not None:
                seen.append(SEEN.key(queue=self.name.removesuffix(DEAD), digest=message.digest()))
                args += message.packed(len(seen))
            else:
                args += message.packed(0)
        reply = await self._run(SEND, at_ms, len(self._all) + 1, *args, keys=seen)
        if reply == -1:
            self._prefix = None
            raise self.not_found()
        answers: list[Any] = reply[1:]
        return answers

    def sent(self, answer: Any, prefix: str) -> Sent | QueueError:
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

    async def claim(
        self,
        subscriber: str,
        most: int,
        *,
        patterns: Iterable[str] = (),
        visibility_ms: int = 0,
        at_ms: int = 0,
    ) -> Batch:
        """Up to `most` messages for one subscriber, each with a lease. Patterns that match everything are none."""
        prefix = await self.prefix()
        wanted = () if "#" in (patterns := tuple(patterns)) else patterns
        reply = await self._run(CLAIM, at_ms, subscriber, min(most, CLAIM_MAX), visibility_ms, *wanted)
        if reply == -1:
            self._prefix = None
            raise self.not_found()
        claimed = [
            Claimed(
                prefix + (id_ := reply[n]).decode().partition("@")[0],
                f"{id_.decode()}/{reply[n + 2]}",
                reply[n + 1],
                reply[n + 3],
                reply[n + 4],
                unpack(reply[n + 5]),
            )
            for n in range(2, len(reply), 6)
        ]
        return Batch(reply[0], reply[1], claimed)

    async def acknowledge(self, leases: Sequence[Lease], *, at_ms: int = 0) -> list[Outcome]:
        args: list[Any] = []
        for lease in leases:
            id_, delivery = self._delivery(lease)
            args += (id_, delivery, lease.holder, _VERBS[lease.verb], lease.delay_ms, lease.reason)
        reply = await self._run(ACKNOWLEDGE, at_ms, *args)
        if reply == -1:
            raise self.not_found()
        return [_OUTCOMES[answer] for answer in reply[1:]]

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

    def _delivery(self, lease: Lease) -> tuple[str, int]:
        """The id within the queue and the number of the delivery; what can't be read holds nothing."""
        if lease.receipt:
            id_, _, delivery = lease.receipt.rpartition("/")
            same = id_.partition("@")[0] == lease.message_id.rpartition("-")[2]
            return (id_, int(delivery)) if same and delivery.isdigit() and len(delivery) < 16 else ("", 0)
        return lease.message_id.rpartition("-")[2], 0

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

    async def peek(
        self, most: int, *, subscriber: str = "", patterns: Iterable[str] = (), at_ms: int = 0
    ) -> list[Peeked]:
        prefix = await self.prefix()
        reply = await self._run(PEEK, at_ms, min(most, CLAIM_MAX), subscriber, *patterns)
        if reply == -1:
            raise self.not_found()
        return [
            Peeked(
                prefix + reply[n].decode().partition("@")[0],
                reply[n + 1],
                unpack(reply[n + 2]),
                msgspec.json.decode(reply[n + 3]) if reply[n + 3] else None,
            )
            for n in range(1, len(reply), 4)
        ]

    async def purge(self, *, at_ms: int = 0) -> int:
        """Remove all messages, those in flight too; how many they were."""
        return await self._empty(0, at_ms)

    async def delete(self, *, at_ms: int = 0) -> int:
        """Remove the queue and its dead letters; how many messages it had."""
        if self.name.endswith(DEAD):
            raise invalid("queue_name", "dead letters are deleted with their queue; purge them instead")
        gone = await self._empty(1, at_ms)
        self._prefix = None
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
        self, subscriber: str, owner: str, lease_ms: int, patterns: Iterable[str], *, at_ms: int = 0
    ) -> None:
        """Be known as a subscriber for `lease_ms`; the same owner renews. Broadcasts are kept for who is known."""
        made = await self._run(SUBSCRIBE, at_ms, subscriber, owner, lease_ms, SUBSCRIBERS_MAX, *patterns)
        if made == -1:
            raise self.not_found()
        if made == 0:
            raise QueueError(
                "QUEUE_EXISTS",
                f"subscriber_id: {subscriber!r} subscribes to {self.name!r} already",
                field="subscriber_id",
                queue_name=self.name,
            )
        if made == -2:
            raise QueueError(
                "QUEUE_FULL",
                f"the queue {self.name!r} has {SUBSCRIBERS_MAX} subscribers",
                queue_name=self.name,
                limit=SUBSCRIBERS_MAX,
            )

    async def unsubscribe(self, subscriber: str, owner: str, *, at_ms: int = 0) -> bool:
        return bool(await self._run(UNSUBSCRIBE, at_ms, subscriber, owner))


COUNTERS: Final = (
    "sent",
    "units",
    "received",
    "acknowledged",
    "failed",
    "expired",
    "requeued",
    "purged",
    "redriven",
    "processing_ms",
)
