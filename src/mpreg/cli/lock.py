"""`mpreg lock NAME -- command…`: a command under a lock, and what is known of a lock."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import rich_click as click

from mpreg.cli.keys_options import json_option, run, store_option, store_url

if TYPE_CHECKING:
    from mpreg.store.lock_held import Held
    from mpreg.store.lock_keys import LockKeys
    from mpreg.store.lock_view import LockView

NOT_FOUND, NOT_EXECUTABLE, BY_SIGNAL = 127, 126, 128


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@store_option
@click.option("--ttl", type=float, default=30.0, show_default=True, help="Seconds; renewed while the command runs.")
@click.option("--wait", type=float, default=0.0, show_default=True, help="Seconds to wait for it; `inf` for ever.")
@click.option("--owner", help="Who holds it, for those who look. Default: host/pid.")
@click.option("--value", default="", help="What the lock itself holds, fixed; who holds it then stands beside it.")
@click.option("--owner-key", help="The key of that record. Default: {NAME}:owner.")
@click.option("--fence-key", help="The key of the last fence. Default: {NAME}:fence.")
@click.option("--show", is_flag=True, help="Say who holds it, until when, and who broke it; run nothing.")
@click.option("--break", "break_reason", metavar="REASON", help="Take it away from whoever holds it; written down.")
@json_option
def lock(
    name: str,
    command: tuple[str, ...],
    store: str | None,
    ttl: float,
    wait: float,
    owner: str | None,
    value: str,
    owner_key: str | None,
    fence_key: str | None,
    show: bool,
    break_reason: str | None,
    as_json: bool,
) -> None:
    """Run a COMMAND while holding the lock NAME.

    The lock is renewed while the command runs, and given back when it ends. If it is lost, the command is terminated.
    The command finds the fence in MPREG_LOCK_FENCE: it is higher for each later holder, so that what it writes to can
    refuse a holder that was overtaken.

    \b
    mpreg lock backup:daily --wait 60 -- pg_dump -f dump.sql
    mpreg lock backup:daily --show

    Exit code: that of the command (128 + n if signal n ended it); 1 if the lock is held by someone else, or was lost.
    """
    from mpreg.store.lock_keys import lock_keys

    if sum((show, break_reason is not None, bool(command))) != 1:
        raise click.UsageError("give one of: -- COMMAND…, --show, --break REASON")
    keys = lock_keys(name, visible=value, owner_key=owner_key, fence_key=fence_key)
    if command:
        sys.exit(run(_run(store_url(store), keys, ttl, wait, owner, command)))
    view = run(_look(store_url(store), keys, break_reason, owner))
    if as_json:
        import msgspec

        print(json.dumps(msgspec.to_builtins(view), ensure_ascii=False))
    else:
        for line in _lines(view):
            click.echo(line)


# --- a command under the lock -----------------------------------------------------------------------------------------


async def _run(
    url: str, keys: LockKeys, ttl_s: float, wait_s: float, owner: str | None, command: tuple[str, ...]
) -> int:
    from mpreg.store import connect
    from mpreg.store.lock import Lock

    logging.getLogger("mpreg.lock").setLevel(logging.ERROR)  # that it is lost we say ourselves
    async with await connect(url, name="mpreg-lock") as store:
        taking = Lock(store, keys, ttl_s=ttl_s, owner=owner)
        async with taking.hold(wait_s=wait_s, on_lost="signal") as held:
            return await _child(held, ttl_s, command)


async def _child(held: Held, ttl_s: float, command: tuple[str, ...]) -> int:
    from mpreg.store.lock_lease import margin_s

    child = Child()
    with child.signals_passed_on():
        try:
            await child.start(command, held)
        except FileNotFoundError:
            print(f"mpreg: {command[0]}: command not found", file=sys.stderr)
            return NOT_FOUND
        except OSError as error:
            print(f"mpreg: {command[0]}: {error.strerror}", file=sys.stderr)
            return NOT_EXECUTABLE
        ended = asyncio.create_task(child.wait())
        lost = asyncio.create_task(held.wait_lost())
        await asyncio.wait([ended, lost], return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            print(f"mpreg: the lock {held.name!r} is lost; the command is terminated", file=sys.stderr)
            child.signal(signal.SIGTERM)
            # The margin is what is left of the lease: when it ends, someone else may begin.
            await asyncio.wait([ended], timeout=margin_s(ttl_s))
            if not ended.done():
                child.signal(signal.SIGKILL)
        code = await ended
        lost.cancel()
        await asyncio.wait([lost])
    return code if code >= 0 else BY_SIGNAL - code


class Child:
    """The command. It decides what a signal means; we wait for its end."""

    def __init__(self) -> None:
        # At a terminal it stays in our process group, where Ctrl-C and reading work. Elsewhere it gets one of its own,
        # so that what it started ends with it.
        self._at_terminal = os.isatty(0)
        self._process: asyncio.subprocess.Process | None = None
        self._early: list[int] = []

    async def start(self, command: tuple[str, ...], held: Held) -> None:
        environment = {
            **os.environ,
            "MPREG_LOCK": held.name,
            "MPREG_LOCK_FENCE": str(held.fence),
            "MPREG_LOCK_TOKEN": held.token,
        }
        self._process = await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            process_group=None if self._at_terminal else 0,
            preexec_fn=_die_with_parent(),
        )
        for number in self._early:
            self.signal(number)

    async def wait(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    def signal(self, number: int) -> None:
        if self._process is None:
            self._early.append(number)
            return
        with contextlib.suppress(ProcessLookupError):
            if self._at_terminal:
                self._process.send_signal(number)
            else:
                os.killpg(self._process.pid, number)

    @contextlib.contextmanager
    def signals_passed_on(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
        for number in numbers:
            if number == signal.SIGINT and self._at_terminal:
                loop.add_signal_handler(number, lambda: None)  # the terminal sends it to both by itself
            else:
                loop.add_signal_handler(number, self.signal, number)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)


def _die_with_parent() -> Callable[[], None] | None:
    """A command whose `mpreg lock` is killed would run on without the lock: then it gets a SIGTERM (Linux)."""
    if sys.platform != "linux":
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    parent, pr_set_pdeathsig = os.getpid(), 1

    def begin() -> None:
        prctl(pr_set_pdeathsig, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(BY_SIGNAL + signal.SIGTERM)

    return begin


# --- looking ----------------------------------------------------------------------------------------------------------


async def _look(url: str, keys: LockKeys, break_reason: str | None, by: str | None) -> LockView:
    from mpreg.store import connect
    from mpreg.store.lock_view import break_lock, inspect

    async with await connect(url, name="mpreg-lock") as store:
        if break_reason is not None:
            await break_lock(store, keys, reason=break_reason, by=by)
        return await inspect(store, keys)


def _lines(view: LockView) -> list[str]:
    if view.held:
        runs_out = "never runs out" if view.ttl_s is None else f"runs out in {view.ttl_s:.1f} s"
        lines = [f"{view.name}: held by {view.owner}, {runs_out}"]
    else:
        lines = [f"{view.name}: free"]
    if view.fence is not None:
        lines.append(f"  {'fence' if view.held else 'last fence'} {view.fence}")
    lines += [
        f"  broken {_when(entry.at)} by {entry.by}, taken from {entry.agent or entry.token}: {entry.reason}"
        for entry in view.breaks
    ]
    return lines


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) if math.isfinite(at) else "?"
