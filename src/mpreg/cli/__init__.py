"""`mpreg …`: one module a command group, imported only when its command runs.

Exit codes: 0 done, 1 the operation failed (the error is on stderr), 2 wrong usage.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

import rich_click as click

from mpreg.errors import MpregError

COMMANDS: dict[str, tuple[str, str]] = {
    # command: (module in mpreg.cli that defines a click command of that name, one line of help)
    "serve": ("serve", "Run a node, with the functions of a program"),
    "call": ("call", "Call a function of a node"),
    "functions": ("functions", "Show what a node offers, with types and documentation"),
    "publish": ("publish", "Publish a message, or a message for each line of stdin"),
    "subscribe": ("subscribe", "Show messages as they come"),
    "topics": ("topics", "Show live rates of topics"),
    "schema": ("schema", "Print the JSON Schema of all messages, or an AsyncAPI document"),
    "doctor": ("doctor", "Check what a node needs, and say what to do"),
    "bench": ("bench", "Measure a node"),
    "cache": ("cache", "Look at cached values, and change them"),
    "muf": ("muf", "Requests and replies as plain Redis keys"),
    "keys": ("keys", "Look at, check and keep declared keys of any Valkey or Redis"),
    "cluster": ("cluster", "The nodes of a cluster, what they share, and what becomes of them"),
    "lock": ("lock", "Run a command under a lock; look at a lock, or break it"),
    "queue": ("queue", "Make queues, send and receive, and look after them"),
}


class _Lazy(click.RichGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, help_line = COMMANDS[cmd_name]
        command = getattr(importlib.import_module(f"mpreg.cli.{module}"), cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        command.short_help = help_line
        return command


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="mpreg")
def cli() -> None:
    """Call functions wherever they live, publish, queue, cache, lock and match."""


def main() -> None:
    """The entry point. An `MpregError` is one line on stderr (or one JSON object with --json) and exit code 1."""
    _open_standard_files()
    try:
        cli(prog_name="mpreg")
    except MpregError as error:
        if "--json" in sys.argv:
            body = {"error": {"code": error.code, "message": error.message, "details": error.details}}
            print(json.dumps(body, default=str), file=sys.stderr)
        else:
            print(f"mpreg: {error}", file=sys.stderr)
        sys.exit(1)


def _open_standard_files() -> None:
    """Whoever starts a daemon may have closed them. The first socket would take such a number, and be written to by
    whatever prints."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115 - for good
