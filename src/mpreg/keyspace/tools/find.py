"""Everything that belongs to one thing: `issue 123` is every key whose placeholder `issue` is 123, every set that it is
a member of, and what those keys lead to.

Placeholders of one name mean the same thing in all families of a keyspace; relations say the rest. Keys that can be
spelled out are asked for by name; only where a family needs more than is known is it searched by SCAN.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec

from mpreg.errors import KeyspaceError
from mpreg.keyspace.catalog import Catalog
from mpreg.keyspace.declaration import Declaration
from mpreg.keyspace.placeholder import Value, from_words
from mpreg.keyspace.relation import fit
from mpreg.keyspace.tools.contents import Contents, decode, read
from mpreg.keyspace.tools.leads import leads
from mpreg.keyspace.tools.walk import Scope, Walked, look_at, walk
from mpreg.store import Store

KEYS_MAX = 1_000
DEPTH = 2
LIST_MAX = 10_000  # elements of a list that are searched for a member
SPELLED_MAX = 100  # combinations of choices that are asked for by name


class Thing(msgspec.Struct, frozen=True):
    """What is looked for: `issue` `123`."""

    name: str
    text: str


class FoundKey(msgspec.Struct, frozen=True):
    key: bytes
    walked: Walked | None
    """None: it would belong here, but is not in the store."""
    via: str
    depth: int
    contents: Contents | None = None


class Found(msgspec.Struct):
    keys: dict[bytes, FoundKey] = msgspec.field(default_factory=dict)
    searched: list[str] = msgspec.field(default_factory=list)
    """Families that had to be searched key by key."""
    cut: bool = False
    """There was more than `keys_max`."""
    looked: int = 0
    """Keys that a search has looked at."""
    progress: Callable[[int], None] | None = None


def parse_query(catalog: Catalog, query: str) -> list[Thing]:
    """`issue 123`, `issue=123`, `issue:status 123`, or a whole key."""
    words = query.strip()
    match = catalog.family_of(words.encode("utf-8", "surrogateescape"))
    if match is not None and match.values:
        return [Thing(name, _spelled(value)) for name, value in match.values.items()]
    mark = "=" if "=" in words.partition(" ")[0] else None
    name, _, text = (part.strip() for part in (words.partition(mark) if mark else words.partition(" ")))
    if not name or not text:
        raise _unclear(f"say what, then which: `issue 123`, not {query!r:.100}")
    names = {placeholder.name for one in catalog for placeholder in one.pattern.placeholders}
    if name in names:
        return [Thing(name, text)]
    for one in catalog:
        own = one.pattern.placeholders
        if name in (one.name, one.full_name) and len(own) == 1:
            return [Thing(own[0].name, text)]
    raise _unclear(f"no key has a {name!r:.60}; there are: {', '.join(sorted(names)) or 'none'}")


def _unclear(why: str) -> KeyspaceError:
    return KeyspaceError("KEYSPACE_INVALID_QUERY", why, field="query")


def _spelled(value: Value) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


async def find(
    store: Store,
    catalog: Catalog,
    things: list[Thing],
    *,
    depth: int = DEPTH,
    keys_max: int = KEYS_MAX,
    progress: Callable[[int], None] | None = None,
) -> Found:
    """Breadth first: what is the thing itself, then what that leads to, up to `depth` steps. Where one has to search,
    `progress` is told how many keys were looked at."""
    found = Found(progress=progress)
    known = set(things)
    waiting = deque((thing, 0) for thing in things)
    while waiting and not found.cut:
        thing, step = waiting.popleft()
        async for key in _of_thing(store, catalog, thing, step, found):
            if key.key in found.keys and (key.walked is None or found.keys[key.key].walked is not None):
                continue
            if len(found.keys) >= keys_max:
                found.cut = True
                break
            found.keys[key.key] = key
            if step < depth:
                async for led, more in _followed(store, catalog, key):
                    found.keys.setdefault(led.key, led)
                    fresh = [one for one in more if one not in known]
                    known.update(fresh)
                    waiting.extend((one, step + 1) for one in fresh)
    return found


async def _of_thing(store: Store, catalog: Catalog, thing: Thing, step: int, found: Found) -> AsyncIterator[FoundKey]:
    for declaration in catalog:
        placeholder = next((one for one in declaration.pattern.placeholders if one.name == thing.name), None)
        value = from_words(placeholder, thing.text) if placeholder is not None else None
        if value is not None:
            async for walked, key in _keys(store, catalog, declaration, {thing.name: value}, found):
                yield FoundKey(key, walked, f"{thing.name} {thing.text}", step, await _contents(store, walked))
        elif placeholder is None:
            async for held in _holding(store, catalog, declaration, thing, step, found):
                yield held


async def _keys(
    store: Store, catalog: Catalog, declaration: Declaration, known: dict[str, Value], found: Found
) -> AsyncIterator[tuple[Walked | None, bytes]]:
    """The keys of a family with these values: by name when they can be spelled out (also those that are absent)."""
    spelled = _spell(declaration, known)
    if spelled is not None:
        page = await look_at(store, catalog, spelled)
        there = {walked.key: walked for walked in page.found}
        for key in spelled:
            yield there.get(key), key
        return
    found.searched.append(declaration.full_name)
    scope = Scope(declaration.pattern.glob(**known), families=frozenset([declaration.full_name]))
    async for page in walk(store, catalog, scope):
        found.looked += len(page.found)
        if found.progress is not None:
            found.progress(found.looked)
        for walked in page.found:
            assert walked.match is not None, "the scope takes only this family"
            if known.items() <= walked.match.values.items():
                yield walked, walked.key


def _spell(declaration: Declaration, known: dict[str, Value]) -> list[bytes] | None:
    """All keys with these values, if what is open are a few choices."""
    options: list[tuple[Value, ...]] = []
    count = 1
    for placeholder in declaration.pattern.placeholders:
        one: tuple[Value, ...] = (known[placeholder.name],) if placeholder.name in known else placeholder.choices
        count *= len(one)
        if not one or count > SPELLED_MAX:
            return None
        options.append(one)
    names = [placeholder.name for placeholder in declaration.pattern.placeholders]
    return [declaration.pattern.build(dict(zip(names, values, strict=True))) for values in itertools.product(*options)]


# --- sets, lists and sorted sets that hold it -------------------------------------------------------------------------


async def _holding(
    store: Store, catalog: Catalog, declaration: Declaration, thing: Thing, step: int, found: Found
) -> AsyncIterator[FoundKey]:
    members = list(_members(catalog, declaration, thing))
    if not members:
        return
    async for walked, key in _keys(store, catalog, declaration, {}, found):
        if walked is None or walked.type != declaration.type:
            continue
        for member in members:
            if await _holds(store, declaration.type, key, member):
                yield FoundKey(key, walked, f"holds {thing.name} {thing.text}", step)
                break


def _members(catalog: Catalog, declaration: Declaration, thing: Thing) -> Iterator[bytes]:
    """The bytes of the member that means this thing, for each relation whose target has it as its only open value."""
    for one in declaration.relations:
        target = catalog.target(declaration, one.target)
        places = [name for name, source in one.sources.items() if source == "member"]
        if places != [thing.name] or declaration.codec is None:
            continue
        placeholder = next(own for own in target.pattern.placeholders if own.name == thing.name)
        value = from_words(placeholder, thing.text)
        for spelling in (value, thing.text):
            try:
                data = declaration.codec.encode(spelling)
                if fit(placeholder, declaration.codec.decode(data)) == value and value is not None:
                    yield data
                    break
            except KeyspaceError:
                continue


async def _holds(store: Store, type: str, key: bytes, member: bytes) -> bool:
    match type:
        case "set":
            return bool(await store.command(b"SISMEMBER", key, member))
        case "zset":
            return await store.command(b"ZSCORE", key, member) is not None
        case "list":
            return await store.command(b"LPOS", key, member, b"MAXLEN", LIST_MAX) is not None
        case _:
            return False


# --- where it leads ---------------------------------------------------------------------------------------------------


async def _followed(store: Store, catalog: Catalog, key: FoundKey) -> AsyncIterator[tuple[FoundKey, list[Thing]]]:
    """The keys that this one names, and the things that they make known. Members of a set that only holds it do not
    belong to it."""
    match = key.walked.match if key.walked is not None else None
    if match is None or key.contents is None or match.declaration.type != key.contents.type:
        return
    if any(one.of_members for one in match.declaration.relations):
        return
    try:
        decoded: list[Any] = decode(match.declaration, key.contents)
    except KeyspaceError:
        return
    for lead in leads(catalog, match, decoded):
        if lead.key is None:
            continue
        page = await look_at(store, catalog, [lead.key])
        walked = page.found[0] if page.found else None
        via = f"{lead.said} of {key.key.decode('utf-8', 'backslashreplace')}"
        led = FoundKey(lead.key, walked, via, key.depth + 1, await _contents(store, walked))
        yield led, [Thing(name, _spelled(value)) for name, value in lead.values.items()]


async def _contents(store: Store, walked: Walked | None) -> Contents | None:
    if walked is None:
        return None
    declaration = walked.match.declaration if walked.match is not None else None
    return await read(store, walked.key, walked.type, declaration)
