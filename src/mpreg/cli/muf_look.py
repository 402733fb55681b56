"""`mpreg muf ls`, `watch`, `doctor`: what units say to each other, and whether the store lets them."""

from __future__ import annotations

import asyncio
import calendar
import re
import sys
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import rich_click as click

from mpreg.cli.keys_options import json_option, opened, print_json, readable, run, store_option

if TYPE_CHECKING:
    from mpreg.apps.muf.names import Name
    from mpreg.store import Store

SHOWN_BYTES = 120
_MADE_AT = re.compile(r"(?:^|\.)(\d{14})-[2-9a-z]{10}$")


@click.command()
@store_option
@click.option("--unit", help="Only requests of this unit.")
@json_option
def ls(store: str | None, unit: str | None, as_json: bool) -> None:
    """Requests that are there now, by unit: how old, how long they still live, answered or not."""
    run(_ls(store, unit, as_json))


async def _ls(url: str | None, unit: str | None, as_json: bool) -> None:
    shown: str | None = None
    async with opened(url) as store:
        found = [row async for row in _requests(store, unit)]
    for row in sorted(found, key=lambda row: (row["unit"], row["id"])):
        if as_json:
            print_json(row)
            continue
        if row["unit"] != shown:
            shown = row["unit"]
            click.echo(f"{shown}")
        age = "?" if row["age_s"] is None else f"{row['age_s']:.0f} s"
        left = "gone" if row["left_s"] == 0 else "for ever" if row["left_s"] is None else f"{row['left_s']:.1f} s"
        click.echo(f"  {row['id']:<40} {row['state']:<9} age {age:>7}  left {left:>9}")
    if not found and not as_json:
        click.echo("no requests")


async def _requests(store: Store, unit: str | None) -> AsyncIterator[dict[str, Any]]:
    """Every request, and every answer whose request is gone."""
    from mpreg.apps.muf import names

    seen: set[tuple[str, str]] = set()
    for status in ("REQ", "RES", "ERR"):
        async for page in store.scan(match=names.glob(unit, status)):
            for key in page:
                name = names.parse(key)
                if name is None or name.status != status or (name.unit, name.id) in seen:
                    continue
                seen.add((name.unit, name.id))
                yield await _row(store, name)


async def _row(store: Store, name: Name) -> dict[str, Any]:
    left_ms, res, err = await asyncio.gather(
        store.send(b"PTTL", name.with_status("REQ").key),
        *(store.send(b"EXISTS", name.with_status(status).key) for status in ("RES", "ERR")),
    )
    made = _MADE_AT.search(name.id)
    age_s = None
    if made is not None:
        try:
            age_s = time.time() - calendar.timegm(time.strptime(made[1], "%Y%m%d%H%M%S"))
        except ValueError:
            age_s = None
    return {
        "unit": name.unit,
        "id": name.id,
        "state": "answered" if res else "failed" if err else "waiting",
        "age_s": age_s,
        "left_s": None if left_ms == -1 else max(0, left_ms) / 1000,
    }


@click.command()
@store_option
@click.option("--unit", help="Only what concerns this unit's requests and state.")
@json_option
def watch(store: str | None, unit: str | None, as_json: bool) -> None:
    """Every request, answer and state as it is set. Ctrl-C ends it."""
    run(_watch(store, unit, as_json))


async def _watch(url: str | None, unit: str | None, as_json: bool) -> None:
    from mpreg.apps.muf import names
    from mpreg.store import Gap

    async with opened(url) as store:
        patterns = [names.glob(unit, status) for status in ("REQ", "RES", "ERR", "KEEP")]
        async with store.keyspace_events(*patterns) as events:
            print("watching", file=sys.stderr, flush=True)
            async for item in events:
                if isinstance(item, Gap):
                    print("some events may be missing here", file=sys.stderr, flush=True)
                    continue
                name = names.parse(item.key)
                if name is None or item.event != "set":
                    continue
                _show(name, await store.command(b"GETRANGE", item.key, 0, SHOWN_BYTES), as_json)


def _show(name: Name, value: bytes, as_json: bool) -> None:
    if as_json:
        print_json({"at": time.time(), **name._asdict(), "value": value.decode("utf-8", "backslashreplace")})
    else:
        more = "…" if len(value) > SHOWN_BYTES else ""
        clock = time.strftime("%H:%M:%S")
        click.echo(f"{clock} {name.status:<4} {name.unit} {name.id}  {readable(value[:SHOWN_BYTES])}{more}")
    sys.stdout.flush()


@click.command()
@store_option
@json_option
def doctor(store: str | None, as_json: bool) -> None:
    """Try what units need of this store. Exit code 1 if something keeps them from working well."""
    sys.exit(run(_doctor(store, as_json)))


async def _doctor(url: str | None, as_json: bool) -> int:
    async with opened(url) as store:
        rows = [{"check": "server", "ok": True, "found": f"{store.server.name} {store.server.version}", "do": ""}]
        rows.append(await _may_write(store))
        rows.append(await _tells(store))
        rows.append(await _evicts(store))
    for row in rows:
        if as_json:
            print_json(row)
        else:
            click.echo(f"{'ok ' if row['ok'] else 'BAD'}  {row['check']:<14} {row['found']}")
            if row["do"]:
                click.echo(f"     {row['do']}")
    return 0 if all(row["ok"] for row in rows) else 1


async def _may_write(store: Store) -> dict[str, Any]:
    from mpreg.apps.muf.names import Name, new_id
    from mpreg.errors import StoreError

    key = Name("mpreg-doctor", "KEEP", new_id()).key
    try:
        await store.command(b"SET", key, b"", b"PX", 1000)
    except StoreError as error:
        return {"check": "writing", "ok": False, "found": error.message, "do": "Units need SET and GET on MUF/*."}
    return {"check": "writing", "ok": True, "found": "SET works", "do": ""}


async def _tells(store: Store) -> dict[str, Any]:
    from mpreg.apps.muf import names
    from mpreg.errors import StoreError

    row: dict[str, Any] = {"check": "key events", "ok": True, "found": "they come", "do": ""}
    advice = "Set notify-keyspace-events to K$ at least (in the server's own settings, to last); till then units poll."
    try:
        async with store.keyspace_events(names.glob(None, "REQ"), configure=False, required=False) as events:
            if events.silent is not None:
                return {**row, "ok": False, "found": events.silent, "do": advice}
    except StoreError as error:
        return {**row, "ok": False, "found": error.message, "do": advice}
    return row


async def _evicts(store: Store) -> dict[str, Any]:
    from mpreg.errors import StoreError

    row: dict[str, Any] = {"check": "eviction", "ok": True, "found": "unknown (CONFIG is not allowed)", "do": ""}
    try:
        found = await store.primaries()[0].command(b"CONFIG", b"GET", b"maxmemory-policy")
    except StoreError:
        return row
    policy = (dict(zip(found[::2], found[1::2], strict=True)) if isinstance(found, list) else found).get(
        b"maxmemory-policy", b"?"
    )
    row["found"] = policy.decode()
    if policy != b"noeviction":
        row["do"] = "A full server may drop requests and answers unasked; noeviction refuses new ones instead."
    return row
