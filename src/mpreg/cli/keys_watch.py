"""`mpreg keys watch`: changes of keys as they happen."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import rich_click as click

from mpreg.cli.keys_options import (
    json_option,
    load_catalog,
    opened,
    print_json,
    readable,
    run,
    schema_option,
    store_option,
)
from mpreg.cli.keys_output import as_text, key_fields, match_fields

if TYPE_CHECKING:
    from mpreg.keyspace import Catalog
    from mpreg.keyspace.tools.walk import Scope
    from mpreg.keyspace.tools.watch import Watched


@click.command()
@click.option("--family", multiple=True, metavar="NAME", help="Only this declared family; several are joined.")
@click.option("--everything", is_flag=True, help="Also keys outside the declared prefixes.")
@click.option("--event", multiple=True, metavar="NAME", help="Only this event (set, del, expired, hset, …).")
@click.option("--values", is_flag=True, help="Read each key that changed and show its value.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after N changes. Default: until Ctrl-C.")
@click.option("--no-configure", is_flag=True, help="Don't set notify-keyspace-events where flags are missing.")
@store_option
@schema_option
@json_option
def command(
    family: tuple[str, ...],
    everything: bool,
    event: tuple[str, ...],
    values: bool,
    count: int | None,
    no_configure: bool,
    store: str | None,
    schema: tuple[str, ...],
    as_json: bool,
) -> None:
    """Changes of keys as they happen, from every primary. With --json: one object a line.

    Servers send events only when notify-keyspace-events says so; missing flags are added, others are left alone.
    """
    from mpreg.keyspace.tools.walk import scope_of

    catalog = load_catalog(schema)
    scope = scope_of(catalog, family, everything=everything)
    run(_watch(store, catalog, scope, frozenset(event), values, count, not no_configure, as_json))


async def _watch(
    url: str | None,
    catalog: Catalog,
    scope: Scope,
    events: frozenset[str],
    values: bool,
    count: int | None,
    configure: bool,
    as_json: bool,
) -> None:
    from mpreg.keyspace.tools.watch import Change, watching

    left = count
    async with (
        opened(url) as store,
        watching(store, catalog, scope, events=events, values=values, configure=configure) as changes,
    ):
        click.echo("watching", err=True)
        async for one in changes:
            _show(one, as_json)
            if left is not None and isinstance(one, Change):
                left -= 1
                if left == 0:
                    return


def _show(one: Watched, as_json: bool) -> None:
    from mpreg.keyspace.tools.watch import Change

    at = datetime.datetime.now(datetime.UTC)
    if not isinstance(one, Change):
        if as_json:
            print_json({"at": at.isoformat(), "gap": one.why, "dropped": one.dropped})
        else:
            print(f"--- changes may be missing here ({one.why})", flush=True)
        return
    value, fault = _value(one)
    if as_json:
        shown = {} if one.contents is None else {"value": value, "fault": fault}
        fields = {"at": at.isoformat(), "event": one.event, **key_fields(one.key), **match_fields(one.match)}
        print_json({**fields, **shown})
        return
    family = one.match.declaration.name if one.match is not None else "not declared"
    print(f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}  {one.event:<10} {readable(one.key)}  ({family})", flush=True)
    if one.contents is not None:
        print("    " + as_text(value), flush=True)


def _value(one: Any) -> tuple[Any, str | None]:
    from mpreg.keyspace.tools.contents import shown

    if one.contents is None:
        return None, None
    return shown(one.match.declaration if one.match is not None else None, one.contents)
