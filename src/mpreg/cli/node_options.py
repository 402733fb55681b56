"""What the commands that talk to a node share: how to reach it, and output for people or programs."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import rich_click as click

if TYPE_CHECKING:
    from mpreg.client.connecting import Connecting

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--url",
        envvar="MPREG_URL",
        help="Of the node: ws://, wss://, tcp:// or tcps://; several, with commas between, are tried in turn. "
        "Without it, the node at the usual port of this machine.",
    ),
    click.option("--token", envvar="MPREG_TOKEN", metavar="T", help="Sent as `Authorization: Bearer T`."),
    click.option("--tls-ca", metavar="F", help="PEM file: who issued the node's certificate."),
    click.option("--tls-cert", metavar="F", help="PEM file: a certificate to show, if the node asks for one."),
    click.option("--tls-key", metavar="F", help="PEM file: its key."),
)


def node_options(command: F) -> F:
    """The command takes them together as `**where`, and hands them to `connecting`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def connecting(
    url: str | None = None,
    token: str | None = None,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    **settings: Any,
) -> Connecting:
    """`mpreg.connect` with what the options say."""
    from mpreg.client import connect
    from mpreg.client.connecting import DEFAULT_URL
    from mpreg.transport import TlsFiles

    tls = TlsFiles(ca=tls_ca, cert=tls_cert, key=tls_key) if tls_ca or tls_cert or tls_key else None
    return connect((url or DEFAULT_URL).split(","), token=token, tls=tls, **settings)


def json_option(command: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Output for programs.")(command)


def run(work: Coroutine[Any, Any, T]) -> T:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def write_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
