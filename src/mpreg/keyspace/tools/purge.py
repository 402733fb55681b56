"""Purge: delete what matches, and nothing that has changed since it was chosen.

In this order: the pattern is checked; keys are chosen by reading facts alone (which does not count as using them);
what is chosen is read, judged once more and written to the undo backup; that file is whole and on the disk; then each
key is deleted by a script that compares type, expiry and the digest of its value with what the backup has.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec

from mpreg.errors import KeyspaceError, StoreError
from mpreg.keyspace.declaration import Declaration
from mpreg.keyspace.tools.backup import Progress, Writing
from mpreg.keyspace.tools.backup_file import written
from mpreg.keyspace.tools.conditions import NEVER, Condition, Facts, all_met
from mpreg.keyspace.tools.pace import Pace
from mpreg.keyspace.tools.record_read import PAGE_KEYS, Seen, Use, pages, read, replies
from mpreg.keyspace.tools.scope import check_scope
from mpreg.keyspace.tools.selection import UNDECLARED, Selection
from mpreg.store import Script, Store

PURGE = Script.load(__package__, "purge.lua")
EXAMPLES = 10
MAX_KEYS = 10_000
KEYS_PER_S = 10_000.0


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be purged. `include_protected` are full names of families that hold locks or state. `roots` are what
    declared keys begin with, `root` is given by hand: see scope.py."""

    selection: Selection
    roots: tuple[bytes, ...] = ()
    root: bytes | None = None
    conditions: tuple[Condition, ...] = ()
    include_protected: frozenset[str] = frozenset()
    keys_max: int = MAX_KEYS
    keys_per_s: float | None = None
    """By default what is read is not held back, and what is deleted is."""

    def __post_init__(self) -> None:
        if {"idle", "frequency"} <= self._fields:
            raise KeyspaceError("KEYSPACE_INVALID_QUERY", "no server tracks both idle and frequency", field="where")

    @property
    def _fields(self) -> set[str]:
        return {condition.field for condition in self.conditions}

    @property
    def use(self) -> Use:
        """How keys are used is asked for only if a condition needs it."""
        fields = self._fields
        return "idle" if "idle" in fields else "freq" if "frequency" in fields else ""


class Plan(msgspec.Struct, frozen=True):
    """What a purge would delete."""

    matched: int
    chosen: int
    size_bytes: int
    families: dict[str, int]
    """How many of each family are chosen."""
    protected: dict[str, int]
    """How many of each family were left alone because they are locks or state."""
    unmet: int
    unknown: int
    """Keys of which a condition asks what is not known."""
    examples: list[str]


class Purged(msgspec.Struct, frozen=True):
    deleted: int
    gone: int
    """Vanished after they were chosen."""
    changed: int
    """Written or renewed after they were chosen; they live on."""


class Fingerprint(msgspec.Struct, frozen=True):
    key: bytes
    type: str
    expires_at_ms: int | None
    digest: str


async def plan(store: Store, order: Order, progress: Progress = lambda done: None) -> tuple[Plan, list[bytes]]:
    """What would go, and the keys themselves, of which no more are kept than may be purged at once."""
    check_order(order)
    try:
        return await _plan(store, order, progress)
    except StoreError as error:
        if order.use and "maxmemory policy" in error.message:
            field = "idle" if order.use == "idle" else "frequency"
            raise KeyspaceError(
                "KEYSPACE_INVALID_QUERY",
                f"this server does not track {field}: its maxmemory-policy decides which of idle and frequency it does",
                field="where",
            ) from None
        raise


async def _plan(store: Store, order: Order, progress: Progress) -> tuple[Plan, list[bytes]]:
    chosen: list[bytes] = []
    examples: list[str] = []
    families: Counter[str] = Counter()
    protected: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    selection = order.selection
    async for page in pages(
        store,
        selection.match,
        accepts=selection.accepts,
        value="",
        use=order.use,
        keys_per_s=order.keys_per_s,
    ):
        for seen in page.found:
            counted["matched"] += 1
            declaration = selection.declaration(seen.key)
            if _is_protected(declaration, order):
                assert declaration is not None
                protected[declaration.full_name] += 1
                continue
            met = all_met(order.conditions, facts(seen, declaration))
            if not met:
                counted["unknown" if met is None else "unmet"] += 1
                continue
            counted["chosen"] += 1
            counted["size_bytes"] += seen.size_bytes or 0
            families[declaration.full_name if declaration is not None else UNDECLARED] += 1
            if len(chosen) < order.keys_max:
                chosen.append(seen.key)
            if len(examples) < EXAMPLES:
                examples.append(seen.key.decode("utf-8", "backslashreplace"))
        progress(counted["matched"])
    planned = Plan(
        matched=counted["matched"],
        chosen=counted["chosen"],
        size_bytes=counted["size_bytes"],
        families=dict(families),
        protected=dict(protected),
        unmet=counted["unmet"],
        unknown=counted["unknown"],
        examples=examples,
    )
    return planned, chosen


def check_order(order: Order) -> None:
    """Raise KEYSPACE_PURGE_REFUSED for an order that reaches too far. Keys of declared families are known by all of
    their pattern, so there any literal beginning will do; a glob has to name its root."""
    selection = order.selection
    if not selection.by_glob:
        for one in selection.catalog.select(selection.families):
            check_scope(one.pattern.glob(), root=one.pattern.head)
    else:
        check_scope(selection.match, order.roots, order.root)


def refuse_too_many(planned: Plan, order: Order) -> None:
    if planned.chosen > order.keys_max:
        raise KeyspaceError(
            "KEYSPACE_PURGE_REFUSED",
            f"{planned.chosen} keys would be deleted, and at most {order.keys_max} may be (--max); nothing was deleted",
            chosen=planned.chosen,
            limit=order.keys_max,
        )


async def purge(
    store: Store,
    order: Order,
    keys: Sequence[bytes],
    *,
    undo: str | None,
    on_undo: Callable[[str], None] = lambda undo: None,
    progress: Progress = lambda done: None,
) -> Purged:
    """Delete the keys of a plan. `undo` is the file that brings them back, None to have none; `on_undo` is told when it
    is complete, before the first key goes."""
    if undo is None:
        fingerprints, lost = await _read(store, order, keys, None)
    else:
        with written(undo) as sink:
            writing = Writing(store, sink, order.selection.match, order.selection.families)
            fingerprints, lost = await _read(store, order, keys, writing)
            writing.end(lost["gone"])
        on_undo(undo)
    counted = Counter(lost)
    loop = asyncio.get_running_loop()
    pace = Pace(order.keys_per_s or KEYS_PER_S, loop.time())
    done = 0
    for batch in _split(fingerprints):
        try:
            outcomes = await replies([_delete(store, fingerprint) for fingerprint in batch])
        except StoreError as error:
            raise _interrupted(error, counted["deleted"], undo) from error
        counted.update(outcome.decode() for outcome in outcomes)
        done += len(batch)
        progress(done)
        await asyncio.sleep(pace.after(len(batch), loop.time()))
    return Purged(deleted=counted["deleted"], gone=counted["gone"], changed=counted["changed"])


async def _read(
    store: Store, order: Order, keys: Sequence[bytes], writing: Writing | None
) -> tuple[list[Fingerprint], Counter[str]]:
    """Reads what was chosen into the undo backup. What no longer meets the conditions has changed."""
    fingerprints: list[Fingerprint] = []
    lost: Counter[str] = Counter()
    async for page in read(store, keys, value="dump" if writing is not None else "digest", use=order.use):
        lost["gone"] += page.gone
        still = [
            seen for seen in page.found if all_met(order.conditions, facts(seen, order.selection.declaration(seen.key)))
        ]
        lost["changed"] += len(page.found) - len(still)
        if writing is not None:
            writing.add(still)
        fingerprints += [_fingerprint(seen, hashed=writing is None) for seen in still]
    return fingerprints, lost


def _fingerprint(seen: Seen, *, hashed: bool) -> Fingerprint:
    digest = seen.value.decode() if hashed else hashlib.sha1(seen.value, usedforsecurity=False).hexdigest()
    return Fingerprint(seen.key, seen.type, seen.expires_at_ms, digest)


def _split(fingerprints: Sequence[Fingerprint]) -> Iterator[Sequence[Fingerprint]]:
    for at in range(0, len(fingerprints), PAGE_KEYS):
        yield fingerprints[at : at + PAGE_KEYS]


def _delete(store: Store, seen: Fingerprint) -> asyncio.Future[object]:
    at = seen.expires_at_ms if seen.expires_at_ms is not None else -1
    return store.send_script(PURGE, [seen.key], [seen.type, at, seen.digest])


def _is_protected(declaration: Declaration | None, order: Order) -> bool:
    return (
        declaration is not None
        and declaration.protection != "none"
        and declaration.full_name not in order.include_protected
    )


def facts(seen: Seen, declaration: Declaration | None) -> Facts:
    left = NEVER if seen.left_ms is None else seen.left_ms / 1000
    return Facts(
        type=seen.type,
        ttl_remaining=left,
        idle=seen.used,
        frequency=seen.used,
        size_bytes=seen.size_bytes,
        age=_age(left, declaration),
    )


def _age(left: float, declaration: Declaration | None) -> float | None:
    """Known where every write sets the same TTL, and this key has no longer to live than that."""
    ttl = declaration.ttl if declaration is not None else None
    if ttl is None or ttl.seconds is None or ttl.max_seconds is not None or ttl.renew != "write" or left > ttl.seconds:
        return None
    return ttl.seconds - left


def _interrupted(error: StoreError, deleted: int, undo: str | None) -> KeyspaceError:
    back = f"; {undo} brings back what was deleted" if undo is not None else ""
    return KeyspaceError(
        "KEYSPACE_PURGE_FAILED",
        f"after {deleted} keys: {error.message}{back}",
        retryable=error.retryable,
        state_changed=True if deleted else None,
        deleted=deleted,
        undo=undo,
        cause=error.code,
    )
