"""Messages that are sent again and again, as a cron expression says: kept in the store, sent once by whichever node is
alive.

A node that finds one due takes it for a moment, sends it with a deduplication id of the schedule and its time, and
moves it on. A node that dies in between leaves it to the others, and the id keeps it from being sent twice. What was
missed while no node was alive is sent once, late.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from mpreg.errors import MpregError, QueueError
from mpreg.queues.cron import next_after, parse_cron, parse_zone
from mpreg.queues.keys import SCHEDULES
from mpreg.queues.message import HEADER_BYTES_MAX, PAYLOAD_BYTES_MAX
from mpreg.queues.names import check_queue_name, check_text, check_topic, invalid
from mpreg.queues.records import Sent
from mpreg.queues.scripts import SCHEDULE_DELETE, SCHEDULE_DONE, SCHEDULE_PUT, SCHEDULE_TAKE
from mpreg.queues.settings import PRIORITY_MAX, number
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.queues import Outgoing, Scheduled, SchedulePayload

if TYPE_CHECKING:
    from mpreg.store import Store

log = logging.getLogger(__name__)

SCHEDULES_MAX: Final = 10_000
PAGE: Final = 100
TAKEN_MS: Final = 30_000
"""How long a node may take to send what it found due; then another one does."""
LOOK_S: Final = 5.0
"""How often a node looks for schedules that another one has made."""
LOOK_S_MIN: Final = 0.01

Send = Callable[[str, Outgoing, Encoding], Awaitable[Sent]]


class Definition(msgspec.Struct, frozen=True, array_like=True):
    """As the store keeps it."""

    cron: str
    timezone: str
    queue_name: str
    topic: str
    priority: int
    headers: dict[str, str]
    encoding: str
    payload: bytes


class Schedules:
    def __init__(self, store: Store, send: Send) -> None:
        self._store = store
        self._send = send
        self._wake = asyncio.Event()

    async def put(self, asked: SchedulePayload, encoding: Encoding) -> Scheduled:
        """Make it or change it; it is next sent at the first time after now, by the store's clock."""
        definition = _checked(asked, encoding)
        seconds, micros = await self._store.command("TIME")
        now = int(seconds) + int(micros) / 1e6
        next_at = next_after(parse_cron(asked.cron), now, parse_zone(asked.timezone))
        args = (asked.schedule_name, msgspec.msgpack.encode(definition), int(next_at * 1000), SCHEDULES_MAX)
        made = await self._store.script(SCHEDULE_PUT, SCHEDULES, args)
        if made == -2:
            raise QueueError("QUEUE_FULL", f"there are {SCHEDULES_MAX} schedules", limit=SCHEDULES_MAX)
        self._wake.set()
        return Scheduled(asked.schedule_name, bool(made), next_at)

    async def delete(self, name: str) -> bool:
        return bool(await self._store.script(SCHEDULE_DELETE, SCHEDULES, (name,)))

    async def page(self, after: str, encoding: Encoding) -> tuple[list[SchedulePayload], bool]:
        """By name; and whether there are more."""
        due_key, definitions_key, _ = SCHEDULES
        names = sorted(name.decode() for name in await self._store.command("HKEYS", definitions_key))
        wanted = [name for name in names if name > after]
        page = wanted[:PAGE]
        if not page:
            return [], False
        definitions = await self._store.command("HMGET", definitions_key, *page)
        times = await self._store.command("ZMSCORE", due_key, *page)
        found = [
            _described(name, msgspec.msgpack.decode(packed, type=Definition), float(at), encoding)
            for name, packed, at in zip(page, definitions, times, strict=True)
            if packed is not None and at is not None
        ]
        return found, len(wanted) > len(page)

    async def run(self) -> None:
        """Send what falls due, for ever."""
        while True:
            pause_s = LOOK_S
            try:
                pause_s = await self._look()
            except MpregError as error:
                log.debug("Schedules can't be looked at: %s", error)
            self._wake.clear()
            try:
                async with asyncio.timeout(max(LOOK_S_MIN, min(pause_s, LOOK_S))):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _look(self) -> float:
        """How long until the next one is due."""
        now_ms, next_ms, *due = await self._store.script(SCHEDULE_TAKE, SCHEDULES, (TAKEN_MS, PAGE))
        for name, due_ms, packed in due:
            await self._fire(name.decode(), int(due_ms), msgspec.msgpack.decode(packed, type=Definition), now_ms)
        if due:
            return 0.0
        return (next_ms - now_ms) / 1000 if next_ms else math.inf

    async def _fire(self, name: str, due_ms: int, definition: Definition, now_ms: int) -> None:
        message = Outgoing(
            message_payload=Raw(definition.payload),
            topic=definition.topic,
            priority=definition.priority,
            headers={**definition.headers, "schedule": name},
            deduplication_id=f"{name[:150]} {due_ms}",
        )
        try:
            await self._send(definition.queue_name, message, Encoding(definition.encoding))
        except QueueError as error:
            log.warning("The schedule %r could not send to %r: %s", name, definition.queue_name, error)
        except MpregError as error:
            log.warning("The schedule %r is tried again: %s", name, error)
            return
        cron, zone = parse_cron(definition.cron), parse_zone(definition.timezone)
        following = next_after(cron, max(now_ms, due_ms) / 1000, zone)
        await self._store.script(SCHEDULE_DONE, SCHEDULES, (name, due_ms, int(following * 1000)))


def _checked(asked: SchedulePayload, encoding: Encoding) -> Definition:
    check_text(asked.schedule_name, "schedule_name")
    check_queue_name(asked.queue_name)
    check_topic(asked.topic)
    number("priority", asked.priority, -PRIORITY_MAX, PRIORITY_MAX)
    payload = bytes(asked.message_payload)
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise invalid("message_payload", f"has {len(payload)} bytes, over {PAYLOAD_BYTES_MAX}", limit=PAYLOAD_BYTES_MAX)
    if sum(len(key) + len(value) for key, value in asked.headers.items()) > HEADER_BYTES_MAX:
        raise invalid("headers", f"are over {HEADER_BYTES_MAX} characters", limit=HEADER_BYTES_MAX)
    return Definition(
        asked.cron,
        asked.timezone,
        asked.queue_name,
        asked.topic,
        asked.priority,
        asked.headers,
        encoding.value,
        payload,
    )


def _described(name: str, definition: Definition, next_ms: float, encoding: Encoding) -> SchedulePayload:
    payload: Any = Raw(definition.payload)
    if definition.encoding != encoding.value:
        payload = codec.transcode(payload, Encoding(definition.encoding), encoding)
    return SchedulePayload(
        schedule_name=name,
        cron=definition.cron,
        queue_name=definition.queue_name,
        message_payload=payload,
        timezone=definition.timezone,
        topic=definition.topic,
        priority=definition.priority,
        headers=definition.headers,
        next_at=next_ms / 1000,
    )
