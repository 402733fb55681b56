"""Whether a server sends the keyspace events that someone needs: its flags, and a probe where they can't be read.

Flags are only ever added: others rely on theirs. The setting is lost when a server restarts without having written
it to its configuration, and a replica that is promoted has its own; so this is asked again after each reconnect.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable

from mpreg.errors import StoreError
from mpreg.store.hub import Hub, names
from mpreg.store.link import Argument
from mpreg.store.replies import StoreReplyError
from mpreg.store.server_link import ServerLink
from mpreg.store.slots import tag_for_slot
from mpreg.store.subscription import Inbox, Message

SETTING = "notify-keyspace-events"
CLASSES = frozenset("g$lshzxetdmno")
COVERED_BY_A = frozenset("g$lshzxetd")
_SET_ATTEMPTS = 3

# What a probe does to its key, and the event that proves the flag.
_PROBES: dict[str, tuple[tuple[Argument, ...], bytes]] = {
    "$": ((b"SET", b"", b"1"), b"set"),
    "l": ((b"RPUSH", b"", b"1"), b"rpush"),
    "s": ((b"SADD", b"", b"1"), b"sadd"),
    "h": ((b"HSET", b"", b"1", b"1"), b"hset"),
    "z": ((b"ZADD", b"", b"1", b"1"), b"zadd"),
    "t": ((b"XADD", b"", b"*", b"1", b"1"), b"xadd"),
    "g": ((b"EXPIRE", b"", b"60"), b"expire"),
}
_ENDINGS = ((b"EXPIRE", b"", b"60"), (b"DEL", b""))


def check_classes(needs: str) -> str:
    """The classes of events without the K, which keyspace events always need."""
    classes = needs.replace("K", "")
    if "A" in classes:
        classes = "".join(sorted((set(classes) | COVERED_BY_A) - {"A"}))
    if not classes or not set(classes) <= CLASSES:
        raise StoreError(
            "STORE_INVALID_OPTION",
            f"{needs!r} are not classes of keyspace events; those are {''.join(sorted(CLASSES))}",
            option="needs",
        )
    return classes


def lacking(found: str, classes: str) -> str:
    """The flags that are missing in a setting, in the order that the server documents them."""
    have = set(found) | (COVERED_BY_A if "A" in found else frozenset())
    return "".join(flag for flag in "K" + classes if flag not in have)


class Silence(Exception):
    """Why events do not come, as far as could be found out."""

    def __init__(self, why: str, found: str | None) -> None:
        super().__init__(why)
        self.why = why
        self.found = found


async def ensure(
    hub: Hub, link: ServerLink, classes: str, *, configure: bool, database: int, probe_key: bytes, slot: int | None
) -> None:
    """Returns when events of these classes come; raises Silence with the reason when they don't."""
    if hub.link.server is not None and hub.link.server.protocol == 3:
        link = hub.link  # surely the same server; on RESP2 a subscriber may not ask anything else
    try:
        found = await _setting(link)
    except StoreReplyError:
        # Managed servers have no CONFIG. What they do send can only be tried.
        await _probe(hub, link, classes, database, probe_key, slot)
        return
    for _ in range(_SET_ATTEMPTS):
        missing = lacking(found, classes)
        if not missing:
            return
        if not configure:
            raise Silence(f"{SETTING} is {found!r}, and lacks {missing}", found)
        try:
            await link.command("CONFIG", "SET", SETTING, found + missing)
        except StoreReplyError as error:
            raise Silence(f"{SETTING} is {found!r}, lacks {missing}, and may not be set: {error.text}", found) from None
        found = await _setting(link)  # someone else may have set theirs in the same moment
    raise Silence(f"{SETTING} is {found!r} although {missing} was added; someone else keeps setting it", found)


async def _setting(link: ServerLink) -> str:
    reply = await link.command("CONFIG", "GET", SETTING)
    value: bytes = reply[SETTING.encode()] if isinstance(reply, dict) else reply[1]
    return value.decode()


async def _probe(hub: Hub, link: ServerLink, classes: str, database: int, probe_key: bytes, slot: int | None) -> None:
    unproven = "".join(flag for flag in classes if flag not in _PROBES)
    if unproven:
        raise Silence(f"{SETTING} can't be read, and no probe could prove the classes {unproven}", None)
    for flag in classes:
        command, event = _PROBES[flag]
        # A key of its own each time: an earlier probe may have left one of another type.
        key = probe_key + b":" + secrets.token_hex(8).encode()
        if slot is not None:
            key += b"{" + tag_for_slot(slot) + b"}"
        steps = [command, *_ENDINGS] if flag != "g" else [_PROBES["$"][0], *_ENDINGS]
        if not await _comes(hub, link, key, steps, event, database):
            raise Silence(f"{SETTING} can't be read, and a probe got no event {event.decode()!r}", None)


async def _comes(
    hub: Hub, link: ServerLink, key: bytes, steps: Iterable[tuple[Argument, ...]], event: bytes, database: int
) -> bool:
    inbox = Inbox(100)
    wanted = names([b"__keyspace@%d__:%s" % (database, key)])
    try:
        await hub.add(inbox, wanted)
        for name, _, *rest in steps:
            await link.command(name, key, *rest)
        async with asyncio.timeout(hub.probe_timeout_s):
            while True:
                item = await inbox.get()
                if isinstance(item, Message) and item.data == event:
                    return True
    except TimeoutError:
        return False
    except StoreReplyError as error:
        raise Silence(f"{SETTING} can't be read, and a probe is refused: {error.text}", None) from None
    finally:
        hub.remove(inbox, wanted)
