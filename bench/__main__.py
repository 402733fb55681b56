"""The command line: `python -m bench GROUP… [--only PEER,…] [--case CASE,…] [--secs S] [--reps N] [--out FILE]`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import cast

from bench import report
from bench.plan import Group, Options, load_group
from bench.runner import run_group

GROUPS = ("rpc", "store", "locks", "pubsub", "topics", "muf", "keys", "policies", "queue", "cluster", "cache", "gossip")


def names(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="scripts/bench", description="MPREG beside its peers, in one run.")
    found.add_argument("groups", nargs="+", choices=GROUPS, metavar="GROUP", help=", ".join(GROUPS))
    found.add_argument("--only", type=names, default=(), help="peers whose name contains one of these")
    found.add_argument("--case", type=names, default=(), help="cases whose name contains one of these")
    found.add_argument("--secs", type=float, default=2.0, help="of each case (2)")
    found.add_argument("--reps", type=int, default=3, help="rounds; figures are their medians (3)")
    found.add_argument("--out", help="append the JSON lines to this file instead of printing them")
    found.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop", help="of all Python roles (uvloop)")
    return found


def main() -> None:
    asked = parser().parse_args()
    for name in asked.groups:
        group = cast(Group, load_group(name))
        options = Options(name, asked.secs, asked.reps, asked.only, asked.case, asked.out, asked.loop)
        outcome = run_group(group, options)
        lines = "\n".join(report.lines(outcome, group.AIMS))
        if asked.out:
            with Path(asked.out).open("a") as file:
                file.write(lines + "\n")
        else:
            print(lines)
        print("\n" + report.text(outcome, group.AIMS), flush=True)


if __name__ == "__main__":
    main()
