"""`mpreg muf ls`, `watch`, `doctor`: what units say to each other, and whether the store lets them."""

from __future__ import annotations

import asyncio
import calendar
import re
import sys
import time
from typing import TYPE_CHECKING, Any

import rich_click as click

from mpreg.cli.keys_options import json_option, opened, print_json, printable, readable, run, store_option

if TYPE_CHECKING:
    from mpreg.apps.muf.names import Name
    from mpreg.store import Store

SHOWN_BYTES = 120
MISSING = "some events may be missing here"
_MADE_AT = re.compile(r"(?:^|\.)(\d{14})-[2-9a-z]{10}$")


@click.command()
@store_option
@click.option("--unit", help="Only requests of this unit.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=10_000, show_default=True, help="Show at most so many."
)
@json_option
def ls(store: str | None, unit: str | None, limit: int, as_json: bool) -> None:
    """Requests that are there now, by unit: how old, how long they still live, answered or not."""
    run(_ls(store, checked(unit), limit, as_json))


async def _ls(url: str | None, unit: str | None, limit: int, as_json: bool) -> None:
    shown: str | None = None
    async with opened(url) as store:
        found, more = await _requests(store, unit, limit)
    for row in sorted(found, key=lambda row: (row["unit"], row["id"])):
        if as_json:
            print_json(row)
            continue
        if row["unit"] != shown:
            shown = row["unit"]
            click.echo(printable(row["unit"]))
        age = "?" if row["age_s"] is None else f"{row['age_s']:.0f} s"
        left = "gone" if row["left_s"] == 0 else "for ever" if row["left_s"] is None else f"{row['left_s']:.1f} s"
        click.echo(f"  {printable(row['id']):<40} {row['state']:<9} age {age:>7}  left {left:>9}")
    if more:
        print(f"mpreg: there are more than {limit} requests; --unit or --limit shows others", file=sys.stderr)
    if not found and not as_json:
        click.echo("no requests")


async def _requests(store: Store, unit: str | None, limit: int) -> tuple[list[dict[str, Any]], bool]:
    """Every request, and every answer whose request is gone; True if there are more than the limit."""
    from mpreg.apps.muf import names

    seen: set[tuple[str, str]] = set()
    rows: list[dict[str, Any]] = []
    for status in ("REQ", "RES", "ERR"):
        async for page in store.scan(match=names.glob(unit, status)):
            new = []
            for key in page:
                name = names.parse(key)
                if name is not None and name.status == status and (name.unit, name.id) not in seen:
                    seen.add((name.unit, name.id))
                    new.append(name)
            if len(seen) > limit:
                rows += await asyncio.gather(*(_row(store, name) for name in new[: limit - len(rows)]))
                return rows, True
            rows += await asyncio.gather(*(_row(store, name) for name in new))
    return rows, False


async def _row(store: Store, name: Name) -> dict[str, Any]:
    left_ms, res, err = await asyncio.gather(
        store.send(b"PTTL", name.with_status("REQ").key),
        *(store.send(b"EXISTS", name.with_status(status).key) for status in ("RES", "ERR")),
    )
    return {
        "unit": name.unit,
        "id": name.id,
        "state": "answered" if res else "failed" if err else "waiting",
        "age_s": _age_s(name.id),
        "left_s": None if left_ms == -1 else max(0, left_ms) / 1000,
    }


def _age_s(id: str) -> float | None:
    """From the time in an id that a unit has made; others don't tell."""
    made = _MADE_AT.search(id)
    if made is None:
        return None
    try:
        return max(0.0, time.time() - calendar.timegm(time.strptime(made[1], "%Y%m%d%H%M%S")))
    except ValueError:
        return None


def checked(unit: str | None) -> str | None:
    from mpreg.apps.muf import names

    try:
        return None if unit is None else names.check("--unit", unit)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


@click.command()
@store_option
@click.option("--unit", help="Only what concerns this unit's requests and state.")
@json_option
def watch(store: str | None, unit: str | None, as_json: bool) -> None:
    """Every request, answer and state as it is set. Ctrl-C ends it."""
    run(_watch(store, checked(unit), as_json))


async def _watch(url: str | None, unit: str | None, as_json: bool) -> None:
    from mpreg.apps.muf import names
    from mpreg.errors import StoreError
    from mpreg.store import Gap

    async with opened(url) as store:
        patterns = [names.glob(unit, status) for status in ("REQ", "RES", "ERR", "KEEP")]
        async with store.keyspace_events(*patterns, probe_key=_probe_key()) as events:
            print("watching", file=sys.stderr, flush=True)
            async for item in events:
                if isinstance(item, Gap):
                    print(MISSING, file=sys.stderr, flush=True)
                    continue
                name = names.parse(item.key)
                if name is None or item.event != "set":
                    continue
                try:
                    value = await store.command(b"GETRANGE", item.key, 0, SHOWN_BYTES)
                except StoreError as error:
                    if not error.retryable:
                        raise
                    value = b"?"  # the server went away in this moment; the gap is told once it is back
                _show(name, value, as_json)


def _probe_key() -> bytes:
    """Where events are tried out; within the grammar, as everything under `MUF/`."""
    from mpreg.apps.muf.names import Name

    return Name("mpreg-doctor", "KEEP", ".probe").key


def _show(name: Name, value: bytes, as_json: bool) -> None:
    if as_json:
        print_json({"at": time.time(), **name._asdict(), "value": value.decode("utf-8", "backslashreplace")})
    else:
        more = "…" if len(value) > SHOWN_BYTES else ""
        clock = time.strftime("%H:%M:%S")
        said = f"{clock} {name.status:<4} {printable(name.unit)} {printable(name.id)}"
        click.echo(f"{said}  {readable(value[:SHOWN_BYTES])}{more}")
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
        async with store.keyspace_events(
            names.glob(None, "REQ"), configure=False, required=False, probe_key=_probe_key()
        ) as events:
            if events.silent is not None:
                return {**row, "ok": False, "found": events.silent, "do": advice}
    except StoreError as error:
        return {**row, "ok": False, "found": error.message, "do": advice}
    return row


async def _evicts(store: Store) -> dict[str, Any]:
    from mpreg.errors import StoreError

    row: dict[str, Any] = {"check": "eviction", "ok": True, "found": "unknown (CONFIG is not allowed)", "do": ""}
    policies = set()
    for primary in store.primaries():
        try:
            found = await primary.command(b"CONFIG", b"GET", b"maxmemory-policy")
        except StoreError:
            return row
        settings = found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))
        policies.add(settings.get(b"maxmemory-policy", b"?").decode())
    row["found"] = ", ".join(sorted(policies))
    if policies != {"noeviction"}:
        row["do"] = "A full server may drop requests and answers unasked; noeviction refuses new ones instead."
    return row
