"""`mpreg keys docs`: the declarations as Markdown, or as the schema that programs read."""

from __future__ import annotations

import sys

import rich_click as click

from mpreg.cli.keys_options import json_option, load_catalog, schema_option


@click.command()
@schema_option
@json_option
def command(schema: tuple[str, ...], as_json: bool) -> None:
    """The declared keys as Markdown. With --json: a schema file that other languages, and --schema, can read."""
    from mpreg.keyspace.documentation import markdown
    from mpreg.keyspace.schema import dump

    keyspaces = load_catalog(schema).keyspaces
    sys.stdout.write(dump(keyspaces).decode() if as_json else markdown(keyspaces))
