"""What the commands that talk to a node share: its address, its certificate, output for people or programs."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import rich_click as click

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def url_option(command: F) -> F:
    return click.option(
        "--url",
        envvar="MPREG_URL",
        default="ws://127.0.0.1:6666",
        show_default=True,
        help="Of the node: ws://, wss://, tcp:// or tcps://.",
    )(click.option("--tls-ca", metavar="F", help="PEM file: who issued the node's certificate.")(command))


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Output for programs.")(command)


def tls_files(tls_ca: str | None) -> Any:
    from mpreg.transport import TlsFiles

    return None if tls_ca is None else TlsFiles(ca=tls_ca)


def run(work: Coroutine[Any, Any, T]) -> T:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def write_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
