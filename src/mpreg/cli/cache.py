"""`mpreg cache …`: look at cached values, and change them."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import rich_click as click

from mpreg.cli.cache_files import backup, restore
from mpreg.cli.call import value_of
from mpreg.cli.keys_options import printable
from mpreg.cli.node_options import connecting, json_option, node_options, run, write_json

if TYPE_CHECKING:
    from mpreg.wire.cache import CacheChange, CacheChanged

SECONDS = click.FloatRange(min=0, min_open=True)
_VERSION = click.option("--version", default="v1", show_default=True, metavar="V", help="Of the key.")


@click.group()
def cache() -> None:
    """Look at the cluster's cache, and change it. A NAMESPACE is like `compute.results`."""


cache.add_command(backup)
cache.add_command(restore)


@cache.command()
@click.argument("namespace")
@click.argument("identifier")
@_VERSION
@click.option("--strong", is_flag=True, help="What the store says now, not what the node may hold.")
@node_options
@json_option
def get(namespace: str, identifier: str, version: str, strong: bool, as_json: bool, **where: Any) -> None:
    """Print a value; with --json all that is known of it. Exit code 1 if there is none."""

    async def work() -> Any:
        async with connecting(**where) as client:
            handle = client.cache(namespace, version=version)
            return await handle.get_entry(identifier, consistency="strong" if strong else "eventual")

    found = run(work())
    if found is None:
        print(f"mpreg: nothing is cached as {printable(identifier)} in {printable(namespace)}", file=sys.stderr)
        sys.exit(1)
    if as_json:
        import msgspec

        write_json(msgspec.to_builtins(found))
    else:
        _print(found.value)
        if found.unverified:
            print("mpreg: the store is gone; this is what the node held", file=sys.stderr)


@cache.command()
@click.argument("namespace")
@click.argument("identifier")
@click.argument("value")
@_VERSION
@click.option("--ttl", type=SECONDS, metavar="SECS", help="How long it lives. Default: until it is removed.")
@click.option("--stale", type=SECONDS, metavar="SECS", help="Served so long after that, while it is computed anew.")
@click.option("--tag", "tags", multiple=True, help="Something to invalidate it by; several are joined.")
@click.option("--depends-on", multiple=True, metavar="NAME", help="As --tag: `namespace:identifier`, or any text.")
@click.option("--cost-ms", type=click.FloatRange(min=0), default=0.0, help="What it took to compute.")
@node_options
@json_option
def put(
    namespace: str,
    identifier: str,
    value: str,
    version: str,
    ttl: float | None,
    stale: float | None,
    tags: tuple[str, ...],
    depends_on: tuple[str, ...],
    cost_ms: float,
    as_json: bool,
    **where: Any,
) -> None:
    """Store VALUE: JSON, or else plain text; `-` reads it from stdin."""
    plain = value_of(sys.stdin.read() if value == "-" else value)

    async def work() -> int:
        async with connecting(**where) as client:
            return await client.cache(namespace, version=version).put(
                identifier, plain, ttl=ttl, stale=stale, tags=tags, depends_on=depends_on, cost_ms=cost_ms
            )

    written = run(work())
    if as_json:
        write_json({"version": written})


@cache.command()
@click.argument("namespace")
@click.argument("identifiers", nargs=-1, required=True)
@_VERSION
@click.option("--cascade", is_flag=True, help="And all that depends on it.")
@node_options
@json_option
def delete(
    namespace: str, identifiers: tuple[str, ...], version: str, cascade: bool, as_json: bool, **where: Any
) -> None:
    """Remove values or structures, and say how many there were."""

    async def work() -> int:
        async with connecting(**where) as client:
            handle = client.cache(namespace, version=version)
            return sum([await handle.delete(identifier, cascade=cascade) for identifier in identifiers])

    _print_count(run(work()), "removed", as_json)


@cache.command()
@click.argument("namespace")
@click.argument("pattern", required=False)
@click.option("--tag", help="What carries this tag, in any namespace.")
@click.option("--depends-on", metavar="NAME", help="What depends on this, in any namespace.")
@click.option("--alone", is_flag=True, help="Leave what depends on what is removed.")
@click.option("--timeout", type=SECONDS, default=60.0, show_default=True, help="Seconds.")
@node_options
@json_option
def invalidate(
    namespace: str,
    pattern: str | None,
    tag: str | None,
    depends_on: str | None,
    alone: bool,
    timeout: float,
    as_json: bool,
    **where: Any,
) -> None:
    """Remove what matches PATTERN in NAMESPACE, carries a tag, or depends on something; and what depends on that.

    In PATTERN `*` is any text up to the next dot, and a last `*` any rest; quote it.
    """
    if sum(each is not None for each in (pattern, tag, depends_on)) != 1:
        raise click.UsageError("Give one of PATTERN, --tag and --depends-on.")

    async def work() -> int:
        async with connecting(**where) as client:
            return await client.cache(namespace).invalidate(
                pattern, tag=tag, depends_on=depends_on, cascade=not alone, timeout=timeout
            )

    _print_count(run(work()), "removed", as_json)


@cache.command()
@click.argument("namespace")
@click.argument("identifier")
@click.argument("by", type=float, default=1)
@_VERSION
@click.option("--ttl", type=SECONDS, metavar="SECS", help="Set anew; without it, it stays as it is.")
@node_options
@json_option
def incr(
    namespace: str, identifier: str, by: float, version: str, ttl: float | None, as_json: bool, **where: Any
) -> None:
    """Add BY (default 1; for a negative number write `-- -5`) to a number, and print what it is now."""

    async def work() -> Any:
        async with connecting(**where) as client:
            amount = int(by) if by.is_integer() else by
            return await client.cache(namespace, version=version).incr(identifier, amount, ttl=ttl)

    value = run(work())
    if as_json:
        write_json({"value": value})
    else:
        print(value)


@cache.command()
@click.argument("namespace")
@click.argument("pattern", default="*")
@click.option("--limit", type=click.IntRange(min=1), default=1_000, show_default=True, help="Rows at most.")
@node_options
@json_option
def ls(namespace: str, pattern: str, limit: int, as_json: bool, **where: Any) -> None:
    """List the keys of NAMESPACE that match PATTERN (`*` is any text), with size, TTL and uses.

    With --json one object a line.
    """

    async def work() -> tuple[list[dict[str, Any]], bool]:
        found: list[dict[str, Any]] = []
        async with connecting(**where) as client:
            async for key in client.cache(namespace).keys(pattern):
                if len(found) == limit:
                    return found, True
                found.append(key)
        return found, False

    found, more = run(work())
    if as_json:
        for key in found:
            write_json(key)
    else:
        from mpreg.cli.keys_output import size

        for key in sorted(found, key=lambda each: str(each["identifier"])):
            left = key["ttl_remaining"]
            life = "no end" if left is None else f"{left:.0f} s left"
            uses = "" if key["access_count"] is None else f"  {key['access_count']} uses"
            version = "" if key["version"] == "v1" else f" {printable(key['version'])}"
            print(f"{printable(key['identifier'])}{version}  {key['kind']}  {size(key['size_bytes'])}  {life}{uses}")
    if more:
        print(f"mpreg: there are more than {limit}; see --limit", file=sys.stderr)


@cache.command()
@click.argument("namespace")
@click.option("--detailed", is_flag=True, help="By kind and version, and the largest.")
@node_options
@json_option
def stats(namespace: str, detailed: bool, as_json: bool, **where: Any) -> None:
    """Count the keys, bytes and uses of NAMESPACE, and what the node has done with it in the last day."""

    async def work() -> dict[str, Any]:
        async with connecting(**where) as client:
            return await client.cache(namespace).statistics(detailed=detailed)

    report = run(work())
    if as_json:
        write_json(report)
        return
    requests = report.pop("requests")
    report.pop("cursor", None)
    for name, value in report.items():
        print(f"{name:<20} {json.dumps(value) if isinstance(value, dict) else value}")
    for name, value in {**requests["operations"], **requests["performance"]}.items():
        print(f"{name:<20} {value:.4g}")


@cache.command()
@click.argument("namespace")
@click.argument("pattern", default="*")
@click.option(
    "--if", "conditions", multiple=True, metavar="C", help="`ttl_remaining<60`, `access_count=0`, `age>3600`."
)
@click.option("--max-entries", type=click.IntRange(min=1), help="Stop after so many.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@node_options
@json_option
def clear(
    namespace: str,
    pattern: str,
    conditions: tuple[str, ...],
    max_entries: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Remove the keys of NAMESPACE that match PATTERN (default: all) and fulfil all conditions.

    A condition compares `ttl_remaining` or `age` (seconds), `size_bytes` or `access_count` with a number, by
    `<` `<=` `>` `>=` `=` or `!=`.
    """
    from mpreg.cli.cache_conditions import conditions_of

    wanted = conditions_of(conditions)
    if not dry_run and not yes:
        click.confirm(f"Remove {pattern} of {namespace}?", abort=True, err=True)

    async def work() -> int:
        async with connecting(**where) as client:
            return await client.cache(namespace).clear(
                pattern, conditions=wanted or None, max_entries=max_entries, dry_run=dry_run
            )

    _print_count(run(work()), "would be removed" if dry_run else "removed", as_json)


@cache.command()
@click.argument("namespace")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after N changes. Default: until Ctrl-C.")
@node_options
@json_option
def watch(namespace: str, count: int | None, as_json: bool, **where: Any) -> None:
    """Show which keys of NAMESPACE change, as it happens."""
    try:
        run(_watch(where, namespace, count, as_json))
    except KeyboardInterrupt:
        if count is not None:
            raise


async def _watch(where: dict[str, Any], namespace: str, count: int | None, as_json: bool) -> None:
    changes: asyncio.Queue[CacheChanged] = asyncio.Queue(10_000)

    def take(told: CacheChanged) -> None:
        if changes.full():
            changes.get_nowait()  # who reads this slowly misses the oldest
        changes.put_nowait(told)

    async with connecting(**where) as client:
        await client.cache(namespace).listen(take)
        left = count
        while left is None or left > 0:
            told = await changes.get()
            if told.lost:
                print("mpreg: some changes may be missing", file=sys.stderr)
            for change in told.changes:
                if change.namespace == namespace and (left is None or left > 0):
                    left = left and left - 1
                    _print_change(change, as_json)


def _print_change(change: CacheChange, as_json: bool) -> None:
    if as_json:
        import msgspec

        write_json(msgspec.to_builtins(change))
    else:
        print(f"{change.operation}  {printable(change.identifier)}")
    sys.stdout.flush()


def _print(value: Any) -> None:
    print(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str))


def _print_count(count: int, what: str, as_json: bool) -> None:
    if as_json:
        write_json({"count": count})
    else:
        print(f"{count} {what}")
