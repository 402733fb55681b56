"""`mpreg keys …`: look at, check and keep the keys of any Valkey or Redis whose keys are declared.

One module a subcommand (`keys_<name>.py`, whose click command is called `command`), imported only when it runs.
"""

from __future__ import annotations

import importlib

import rich_click as click

from mpreg.cli.keys_options import Chosen

SUBCOMMANDS: dict[str, tuple[str, str]] = {
    # subcommand: (module in mpreg.cli, one line of help)
    "ls": ("keys_ls", "The families of keys as a tree: how many, how much memory, how long they live."),
    "get": ("keys_get", "One key, decoded as it is declared."),
    "find": ("keys_find", "Everything that belongs to one thing: `mpreg keys find 'issue 123'`."),
    "lint": ("keys_lint", "What in the store contradicts the declarations; exit code 1 if anything does."),
    "stats": ("keys_stats", "Memory of each family, from a sample, with the error of the estimate."),
    "watch": ("keys_watch", "Changes of keys as they happen."),
    "backup": ("keys_backup", "Keys with type, expiry and value into one verified file."),
    "restore": ("keys_restore", "The keys of a backup, made again."),
    "purge": ("keys_purge", "Delete keys: after a look, with a limit, and with a way back."),
    "ttl": ("keys_ttl", "Keys that should expire and never will; --fix gives them the declared TTL."),
    "docs": ("keys_docs", "The declarations as Markdown, JSON, or a schema file for other languages."),
}


class _Lazy(click.RichGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """What the list of commands shows: the table knows it, nothing is imported."""
        if cmd_name not in SUBCOMMANDS:
            return None
        return click.RichCommand(name=cmd_name, help=SUBCOMMANDS[cmd_name][1])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """What runs: now its module is needed."""
        name = args[0]
        if name not in SUBCOMMANDS:
            return super().resolve_command(ctx, args)
        command = importlib.import_module(f"mpreg.cli.{SUBCOMMANDS[name][0]}").command
        assert isinstance(command, click.Command)
        command.name = name
        return name, command, args[1:]


@click.group(cls=_Lazy)
@click.option(
    "--store", envvar="MPREG_STORE", metavar="URL", help="valkey://…, unix://…, valkey+cluster://…, embedded:"
)
@click.option("--schema", multiple=True, metavar="FILE_OR_MODULE", help="What declares the keys; several are joined.")
@click.pass_context
def keys(ctx: click.Context, store: str | None, schema: tuple[str, ...]) -> None:
    """Look at, check and keep declared keys. Nothing here holds up the server: no KEYS, no FLUSH, no unbounded read."""
    ctx.obj = Chosen(store, schema)
