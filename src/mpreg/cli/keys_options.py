"""What the subcommands of `mpreg keys` share: which store, which schema, and output for people or programs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import rich_click as click

if TYPE_CHECKING:
    from mpreg.keyspace import Catalog
    from mpreg.store import Store

EMBEDDED = "embedded:"

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Chosen(NamedTuple):
    """What `mpreg keys` was given before its subcommand."""

    store: str | None = None
    schema: tuple[str, ...] = ()


def store_option(command: F) -> F:
    return click.option(
        "--store", envvar="MPREG_STORE", metavar="URL", help="valkey://…, unix://…, valkey+cluster://…, embedded:"
    )(command)


def schema_option(command: F) -> F:
    return click.option(
        "--schema",
        multiple=True,
        envvar="MPREG_SCHEMA",
        metavar="FILE_OR_MODULE",
        help="What declares the keys: a schema file, a Python file or a module; several are joined. "
        "Default: the keys of MPREG itself.",
    )(command)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Output for programs.")(command)


def rate_option(command: F) -> F:
    return click.option(
        "--rate",
        type=click.FloatRange(min=1),
        metavar="N",
        help="Look at no more than N keys a second. Default: no limit.",
    )(command)


def _chosen() -> Chosen:
    context = click.get_current_context()
    found = context.obj if context is not None else None
    return found if isinstance(found, Chosen) else Chosen()


def store_url(given: str | None) -> str:
    url = given or _chosen().store
    if not url:
        raise click.UsageError(
            "which store? Give --store URL or set MPREG_STORE; `embedded:` is that of a node that runs here"
        )
    return running(url.removeprefix(EMBEDDED)) if url.startswith(EMBEDDED) else url


def running(data_dir: str) -> str:
    """The URL of the embedded store that runs on this directory."""
    from mpreg.errors import StoreError
    from mpreg.store import DATA_DIR, Embedded

    directory = os.path.abspath(data_dir or DATA_DIR)
    url = Embedded.locate(directory)
    if url is None:
        raise StoreError(
            "STORE_UNAVAILABLE",
            f"no store runs on {directory}: `embedded:DIRECTORY` names the data directory of a node that runs",
            data_dir=directory,
        )
    return url


def load_catalog(given: tuple[str, ...]) -> Catalog:
    """The declarations that --schema names; without any, the keys of MPREG itself."""
    from mpreg.cli.keys_own import own_modules
    from mpreg.keyspace.loading import load

    return load(given or _chosen().schema or own_modules())


def schema_given(given: tuple[str, ...]) -> bool:
    """Whether somebody said what is declared, or MPREG's own keys stand in."""
    return bool(given or _chosen().schema)


@asynccontextmanager
async def opened(url: str | None) -> AsyncIterator[Store]:
    """The store of --store, closed in the end."""
    from mpreg.store import connect

    store = await connect(store_url(url), name="mpreg-keys")
    try:
        yield store
    finally:
        await store.close()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Ctrl-C ends it without a traceback, with the exit code that shells expect."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        sys.exit(130)


def print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, default=str), flush=True)


def readable(data: bytes) -> str:
    """A key for people: one line, whatever its bytes are."""
    return printable(data.decode("utf-8", "backslashreplace"))


def printable(text: str) -> str:
    """Text from the store on one line: nothing in it moves the cursor or colours the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
