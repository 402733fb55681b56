"""`mpreg keys lint`: what in the store contradicts the declarations."""

from __future__ import annotations

import fnmatch
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import rich_click as click

from mpreg.cli.keys_options import (
    json_option,
    load_catalog,
    opened,
    print_json,
    printable,
    rate_option,
    readable,
    run,
    schema_option,
    store_option,
)
from mpreg.cli.keys_output import key_fields
from mpreg.cli.keys_progress import progress_bar
from mpreg.keyspace.tools.lint import MEANINGS, RULES, Report, Rule, lint

if TYPE_CHECKING:
    from mpreg.keyspace import Catalog
    from mpreg.keyspace.tools.walk import Scope


@click.command()
@click.option("--family", multiple=True, metavar="NAME", help="Only this declared family; several are joined.")
@click.option("--everything", is_flag=True, help="Also keys outside the declared prefixes.")
@click.option("--rule", multiple=True, type=click.Choice(RULES), help="Only this rule; several are joined.")
@click.option("--ignore", multiple=True, metavar="GLOB", help="Leave out keys that match (`*`, `?`, `[…]`).")
@click.option("--max", "findings_max", type=click.IntRange(1, 1_000_000), default=1_000, show_default=True, metavar="N",
              help="List at most N findings; all are counted.")  # fmt: skip
@store_option
@schema_option
@rate_option
@json_option
def command(
    family: tuple[str, ...],
    everything: bool,
    rule: tuple[Rule, ...],
    ignore: tuple[str, ...],
    findings_max: int,
    store: str | None,
    schema: tuple[str, ...],
    rate: float | None,
    as_json: bool,
) -> None:
    """Check every key against its declaration. Exit code 1 when there are findings, 0 when there are none.

    Reads only. Rules: a key that nobody declared, a wrong type, a TTL that is missing, too long or not declared, a lock
    without one, a value that can't be decoded, a relation that leads nowhere.
    """
    from mpreg.keyspace.tools.walk import scope_of

    catalog = load_catalog(schema)
    scope = scope_of(catalog, family, everything=everything)
    report = run(_lint(store, catalog, scope, rule or RULES, _ignored(ignore), findings_max, rate))
    if as_json:
        print_json(
            {
                "scanned": report.scanned,
                "gone": report.gone,
                "not_read_whole": report.unread,
                "counts": dict(report.counts),
                "findings": [
                    {**key_fields(one.key), "rule": one.rule, "family": one.family, "message": one.message}
                    for one in report.findings
                ],
                "more": report.total > len(report.findings),
            }
        )
    else:
        _show(report)
    sys.exit(1 if report.total else 0)


async def _lint(
    url: str | None,
    catalog: Catalog,
    scope: Scope,
    rules: tuple[Rule, ...],
    ignored: Callable[[bytes], bool] | None,
    findings_max: int,
    rate: float | None,
) -> Report:
    from mpreg.keyspace.tools.walk import key_count

    report = Report()
    async with opened(url) as store:
        with progress_bar("checking", await key_count(store)) as done:
            async for report in lint(
                store, catalog, scope, rules=rules, ignored=ignored, findings_max=findings_max, keys_per_s=rate
            ):
                done(report.scanned)
    return report


def _ignored(globs: tuple[str, ...]) -> Callable[[bytes], bool] | None:
    if not globs:
        return None
    matchers = [re.compile(fnmatch.translate(glob)) for glob in globs]
    return lambda key: any(one.match(key.decode("utf-8", "surrogateescape")) for one in matchers)


def _show(report: Report) -> None:
    by_rule: dict[Rule, list[str]] = {}
    for one in report.findings:
        by_rule.setdefault(one.rule, []).append(f"  {readable(one.key)}: {printable(one.message)}")
    for rule, lines in by_rule.items():
        print(f"{rule} ({report.counts[rule]:,}): {MEANINGS[rule]}")
        print("\n".join(lines))
        left = report.counts[rule] - len(lines)
        if left:
            print(f"  … and {left:,} more")
    said = f"{report.total:,} findings" if report.total else "no findings"
    print(f"{report.scanned:,} keys checked, {said}")
