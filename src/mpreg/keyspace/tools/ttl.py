"""The TTLs that are there against those that are declared, and an end for keys that lack one."""

from __future__ import annotations

import asyncio
from collections import Counter

import msgspec

from mpreg.keyspace.declaration import Declaration
from mpreg.keyspace.tools.backup import Progress
from mpreg.keyspace.tools.pace import Pace
from mpreg.keyspace.tools.record_read import Seen, pages, replies
from mpreg.keyspace.tools.selection import UNDECLARED, Selection
from mpreg.store import Script, Store

TTL = Script.load(__package__, "ttl.lua")
EXAMPLES = 3
SLACK_S = 1.0
"""A TTL that was set in whole seconds may be read as up to one longer."""


class FamilyTtl(msgspec.Struct):
    """What was found in one family. Keys that hold another type than declared are counted apart, and left alone."""

    declared_s: float | None = None
    """The declared TTL; None where none is declared, or where it is the next midnight."""
    until: str | None = None
    required: bool = False
    keys: int = 0
    missing: int = 0
    """Keys without an end although one is declared and required."""
    optional: int = 0
    """Keys without an end where the declaration allows that."""
    too_long: int = 0
    undeclared: int = 0
    """Keys with an end although none is declared."""
    other_type: int = 0
    protected: bool = False
    examples: list[str] = []
    fixed: int = 0


class Audit(msgspec.Struct, frozen=True):
    families: dict[str, FamilyTtl]
    undeclared_keys: int
    """Keys of no family: nothing is said of their TTL."""
    gone: int

    @property
    def faults(self) -> int:
        """What is still wrong."""
        return sum(one.missing - one.fixed + one.too_long for one in self.families.values())


async def audit(
    store: Store,
    selection: Selection,
    *,
    fix: bool = False,
    include_protected: frozenset[str] = frozenset(),
    keys_per_s: float | None = None,
    progress: Progress = lambda done: None,
) -> Audit:
    """With `fix`, every key without an end that should have one gets its declared TTL, counted from now. A lock or
    state gets one only if its family is in `include_protected`: someone may rely on it."""
    families: dict[str, FamilyTtl] = {}
    counted: Counter[str] = Counter()
    loop = asyncio.get_running_loop()
    pace = Pace(keys_per_s, loop.time())
    async for page in pages(store, selection.match, accepts=selection.accepts, value="", keys_per_s=keys_per_s):
        counted["gone"] += page.gone
        endless: list[tuple[Seen, Declaration]] = []
        for seen in page.found:
            counted["seen"] += 1
            declaration = selection.declaration(seen.key)
            if declaration is None:
                counted[UNDECLARED] += 1
            elif _judge(families.setdefault(declaration.full_name, _begin(declaration)), seen, declaration):
                endless.append((seen, declaration))
        if fix:
            fixable = [
                (seen, one) for seen, one in endless if one.protection == "none" or one.full_name in include_protected
            ]
            await _fix(store, fixable, families)
            await asyncio.sleep(pace.after(len(fixable), loop.time()))
        progress(counted["seen"])
    return Audit(dict(sorted(families.items())), counted[UNDECLARED], counted["gone"])


def _begin(declaration: Declaration) -> FamilyTtl:
    ttl = declaration.ttl
    return FamilyTtl(
        declared_s=ttl.seconds if ttl is not None else None,
        until=ttl.until if ttl is not None else None,
        required=ttl is not None and ttl.required,
        protected=declaration.protection != "none",
    )


def _judge(family: FamilyTtl, seen: Seen, declaration: Declaration) -> bool:
    """Counts the key; True if it lacks an end that it must have."""
    family.keys += 1
    ttl = declaration.ttl
    if seen.type != declaration.type:
        family.other_type += 1
        return False
    if ttl is None:
        family.undeclared += seen.left_ms is not None
        return False
    if seen.left_ms is not None:
        if seen.left_ms / 1000 > ttl.longest_s + SLACK_S:
            family.too_long += 1
            _example(family, seen)
        return False
    if not ttl.required:
        family.optional += 1
        return False
    family.missing += 1
    _example(family, seen)
    return True


def _example(family: FamilyTtl, seen: Seen) -> None:
    if len(family.examples) < EXAMPLES:
        family.examples = [*family.examples, seen.key.decode("utf-8", "backslashreplace")]


async def _fix(store: Store, fixable: list[tuple[Seen, Declaration]], families: dict[str, FamilyTtl]) -> None:
    if not fixable:
        return
    seconds, microseconds = await store.primaries()[0].command(b"TIME")
    now_s = int(seconds) + int(microseconds) / 1e6
    sent: list[asyncio.Future[bytes]] = []
    for seen, declaration in fixable:
        assert declaration.ttl is not None
        sent.append(store.send_script(TTL, [seen.key], [declaration.type, declaration.ttl.expires_in_ms(now_s)]))
    for (_, declaration), outcome in zip(fixable, await replies(sent), strict=True):
        families[declaration.full_name].fixed += outcome == b"fixed"
