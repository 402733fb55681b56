"""What in a store contradicts its declarations. It reads only, and each finding is true when it is reported:
what may have changed since it was seen is looked at once more.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Literal, get_args

import msgspec

from mpreg.errors import KeyspaceError
from mpreg.keyspace.catalog import Catalog
from mpreg.keyspace.declaration import Declaration, Match
from mpreg.keyspace.tools.contents import BYTES_MAX, Contents, decode, read
from mpreg.keyspace.tools.leads import Lead, leads
from mpreg.keyspace.tools.record_read import replies
from mpreg.keyspace.tools.walk import NO_TTL, Scope, Walked, WalkPage, look_at, walk
from mpreg.store import Store

Rule = Literal[
    "unknown-key",
    "wrong-type",
    "missing-ttl",
    "lock-without-ttl",
    "long-ttl",
    "undeclared-ttl",
    "undecodable",
    "dangling",
]
RULES: tuple[Rule, ...] = get_args(Rule)
MEANINGS: dict[Rule, str] = {
    "unknown-key": "No declaration fits the key.",
    "wrong-type": "The key holds another Redis type than declared.",
    "missing-ttl": "The key never expires although its declaration says it does.",
    "lock-without-ttl": "A lock that never expires: if its holder dies, it stays taken.",
    "long-ttl": "The key lives longer than its declaration allows.",
    "undeclared-ttl": "The key expires although it is declared to stay.",
    "undecodable": "What is stored does not fit the declared codec or fields.",
    "dangling": "The key names another key that is not there.",
}
TTL_GRACE_MS = 1_000
"""Writer and server may round differently; a TTL longer than declared by less than this is no finding."""
READS_AT_ONCE = 100


class Finding(msgspec.Struct, frozen=True):
    rule: Rule
    key: bytes
    family: str | None
    message: str


class Report(msgspec.Struct):
    """Grows while the keys are walked. `counts` are exact; `findings` are the first `findings_max`."""

    scanned: int = 0
    gone: int = 0
    unread: int = 0
    """Values too large to be decoded whole; their beginning was."""
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    findings: list[Finding] = msgspec.field(default_factory=list)

    @property
    def total(self) -> int:
        return self.counts.total()


async def lint(
    store: Store,
    catalog: Catalog,
    scope: Scope,
    *,
    rules: Iterable[Rule] = RULES,
    ignored: Callable[[bytes], bool] | None = None,
    findings_max: int = 1_000,
    keys_per_s: float | None = None,
) -> AsyncIterator[Report]:
    """The report so far, after each page of keys; the same object each time."""
    report, chosen = Report(), frozenset(rules)
    async for page in walk(store, catalog, scope, keys_per_s=keys_per_s):
        kept = [one for one in page.found if ignored is None or not ignored(one.key)]
        for finding in await _page(store, catalog, WalkPage(kept, page.gone), report, chosen):
            report.counts[finding.rule] += 1
            if len(report.findings) < findings_max:
                report.findings.append(finding)
        yield report


async def _page(
    store: Store, catalog: Catalog, page: WalkPage, report: Report, rules: frozenset[Rule]
) -> list[Finding]:
    report.scanned += len(page.found)
    report.gone += page.gone
    found = [finding for one in page.found for finding in judge(one) if finding.rule in rules]
    found = await _still_so(store, catalog, found)
    if rules & {"undecodable", "dangling"}:
        readable = [one for one in page.found if one.match is not None and one.match.declaration.type == one.type]
        found += [finding for finding in await _contents(store, catalog, readable, report) if finding.rule in rules]
    return found


def judge(one: Walked) -> list[Finding]:
    """What the key, its type and its TTL alone show."""
    if one.match is None:
        return [Finding("unknown-key", one.key, None, f"no declaration fits this {one.type}")]
    declaration = one.match.declaration
    found: list[Finding] = []
    if one.type not in (declaration.type, *declaration.also):
        why = f"is a {one.type}, declared as {declaration.type}"
        found.append(Finding("wrong-type", one.key, declaration.full_name, why))
    wrong = _ttl_fault(declaration, one.ttl_ms)
    if wrong is not None:
        found.append(Finding(wrong[0], one.key, declaration.full_name, wrong[1]))
    return found


def _ttl_fault(declaration: Declaration, ttl_ms: int) -> tuple[Rule, str] | None:
    ttl = declaration.ttl
    if ttl is None:
        why = f"expires in {ttl_ms / 1000:g} s, but is declared without a TTL"
        return ("undeclared-ttl", why) if ttl_ms != NO_TTL else None
    if ttl_ms == NO_TTL:
        if declaration.protection == "lock":
            return "lock-without-ttl", "is a lock and never expires"
        return ("missing-ttl", f"never expires; declared: {ttl.longest_s:g} s") if ttl.required else None
    if ttl_ms > ttl.longest_s * 1000 + TTL_GRACE_MS:
        return "long-ttl", f"expires in {ttl_ms / 1000:g} s; declared: at most {ttl.longest_s:g} s"
    return None


async def _still_so(store: Store, catalog: Catalog, findings: list[Finding]) -> list[Finding]:
    """A key may be written in two commands, or be renewed just now: only what is the same at a second look stays."""
    if not findings:
        return []
    page = await look_at(store, catalog, {finding.key: None for finding in findings})
    now = {one.key: {finding.rule for finding in judge(one)} for one in page.found}
    return [finding for finding in findings if finding.rule in now.get(finding.key, ())]


# --- what is stored ---------------------------------------------------------------------------------------------------


async def _contents(store: Store, catalog: Catalog, readable: list[Walked], report: Report) -> list[Finding]:
    found: list[Finding] = []
    for at in range(0, len(readable), READS_AT_ONCE):
        part = readable[at : at + READS_AT_ONCE]
        contents = await asyncio.gather(*(_read(store, one) for one in part))
        named: list[tuple[Walked, Lead]] = []
        for one, content in zip(part, contents, strict=True):
            if content is None:
                continue
            assert one.match is not None
            report.unread += not content.complete
            try:
                decoded = decode(one.match.declaration, content)
            except KeyspaceError as error:
                found.append(Finding("undecodable", one.key, one.match.declaration.full_name, error.message))
                continue
            named += [(one, lead) for lead in leads(catalog, one.match, decoded) if lead.relation.required]
        found += await _dangling(store, catalog, named)
    return found


async def _read(store: Store, one: Walked) -> Contents | None:
    assert one.match is not None
    return await read(store, one.key, one.type, one.match.declaration, bytes_max=BYTES_MAX)


async def _dangling(store: Store, catalog: Catalog, named: list[tuple[Walked, Lead]]) -> list[Finding]:
    missing = await _absent(store, named)
    confirmed: list[tuple[Walked, Lead]] = []
    for one, lead in missing:
        if await _names_still(store, catalog, one, lead):
            confirmed.append((one, lead))
    return [_dangling_finding(one, lead) for one, lead in await _absent(store, confirmed)]


def _dangling_finding(one: Walked, lead: Lead) -> Finding:
    assert one.match is not None
    target = lead.key.decode("utf-8", "backslashreplace") if lead.key is not None else ""
    why = f"{lead.said} leads to {target:.200}, which is not there" if lead.key is not None else str(lead.fault)
    return Finding("dangling", one.key, one.match.declaration.full_name, why)


async def _absent(store: Store, named: list[tuple[Walked, Lead]]) -> list[tuple[Walked, Lead]]:
    """Those whose target does not exist, each key asked for once."""
    asked = list({lead.key: None for _, lead in named if lead.key is not None})
    if not asked:
        return named
    answers: list[Any] = await replies([store.send(b"EXISTS", key) for key in asked])
    there = {key for key, answer in zip(asked, answers, strict=True) if answer}
    return [(one, lead) for one, lead in named if lead.key not in there]


async def _names_still(store: Store, catalog: Catalog, one: Walked, lead: Lead) -> bool:
    """Does the key still name this target? Members come and go while we look."""
    match: Match | None = one.match
    assert match is not None
    content = await _read(store, one)
    if content is None:
        return False
    try:
        decoded = decode(match.declaration, content)
    except KeyspaceError:
        return False
    return any((again.said, again.key) == (lead.said, lead.key) for again in leads(catalog, match, decoded))
