"""`mpreg muf …`: be a unit from the shell, in both roles, and look at what units say to each other."""

from __future__ import annotations

import asyncio
import importlib
import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

import rich_click as click

from mpreg.cli.keys_options import run, store_option, store_url

if TYPE_CHECKING:
    from mpreg.apps.muf import Request, Unit

OUTPUT_BYTES_MAX = 64 << 20
TIMED_OUT = 2

_ELSEWHERE = {
    "ls": ("muf_look", "Requests: how old, how long they live, answered or not, by unit."),
    "watch": ("muf_look", "The conversation, live."),
    "doctor": ("muf_look", "Does this store do what units need? What to do if not."),
    "bench": ("muf_bench", "Round trips per second, and how long they take."),
}


class _Lazy(click.RichGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *_ELSEWHERE]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _ELSEWHERE:
            command = getattr(importlib.import_module(f"mpreg.cli.{_ELSEWHERE[cmd_name][0]}"), cmd_name)
            assert isinstance(command, click.Command)
            return command
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Lazy)
def muf() -> None:
    """Requests and replies as plain Redis keys: MUF/<unit>/<REQ|RES|ERR|KEEP>/<id>."""


@muf.command()
@store_option
@click.option("--unit", required=True, help="Who asks.")
@click.option("--id", help="The request's id; made here if not given.")
@click.option("--ttl", type=float, help="Seconds that a backend has to start on it. [default: 10]")
@click.option("--timeout", type=float, help="Seconds to wait for the answer. [default: 30]")
@click.option("--target", help="Put before the id that is made here, for backends that select by it.")
@click.argument("data")
def call(
    store: str | None,
    unit: str,
    id: str | None,
    ttl: float | None,
    timeout: float | None,
    target: str | None,
    data: str,
) -> None:
    """Ask, and print the answer's bytes. DATA is sent as it stands; `-` reads it from stdin.

    Exit code: 0 answered by RES; 1 by ERR (its bytes on stderr), or an error; 2 no answer in time.
    """
    body = sys.stdin.buffer.read() if data == "-" else os.fsencode(data)
    sys.exit(run(_call(store_url(store), unit, body, id=id, ttl=ttl, timeout=timeout, target=target)))


async def _call(url: str, unit: str, body: bytes, **how: Any) -> int:
    from mpreg.apps.muf import MufRemoteError, MufTimeout

    async with await _connect(unit, url) as frontend:
        try:
            answer = await frontend.request(body, **how)
        except MufRemoteError as error:
            sys.stderr.buffer.write(error.payload)
            return 1
        except MufTimeout as error:
            print(f"mpreg: {error}", file=sys.stderr)
            return TIMED_OUT
        except ValueError as error:
            raise click.UsageError(str(error)) from None
    sys.stdout.buffer.write(answer)
    sys.stdout.buffer.flush()
    return 0


async def _connect(unit: str, url: str) -> Unit:
    from mpreg.apps.muf import Unit

    try:
        return await Unit.connect(unit, url)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


@muf.command()
@store_option
@click.option("--unit", required=True, help="Who answers.")
@click.option("--group", help="Backends of a group share the work: each request is claimed by one of them.")
@click.option("--claim", type=click.Choice(["once", "lease", "off"]), help="[default: once with --group, else off]")
@click.option("--from", "issuers", multiple=True, metavar="UNIT", help="Serve only these units.")
@click.option("--target", help="Serve only ids that begin with TARGET and a dot.")
@click.option("--concurrency", type=click.IntRange(1, 1000), default=4, show_default=True, help="Commands at a time.")
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Kill a command after S seconds, and answer ERR.",
)
@click.option("--exec", "command", required=True, metavar="CMD", help="Run for each request.")
def serve(
    store: str | None,
    unit: str,
    group: str | None,
    claim: str | None,
    issuers: tuple[str, ...],
    target: str | None,
    concurrency: int,
    time_limit: float | None,
    command: str,
) -> None:
    """Answer requests with a command: the request on its stdin, the answer from its stdout.

    A command that fails answers with ERR and what it wrote to stderr. It finds MUF_UNIT and MUF_ID in its environment.
    Ends on SIGTERM or Ctrl-C, after what runs has finished (10 s at most).
    """
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise click.UsageError(f"--exec: {error}") from None
    if not argv:
        raise click.UsageError("--exec: the command is empty")
    offer: dict[str, Any] = {
        "group": group,
        "claim": claim,
        "issuers": issuers or None,
        "target": target,
        "concurrency": concurrency,
    }
    run(_serve(store_url(store), unit, argv, time_limit, offer))


async def _serve(url: str, name: str, argv: list[str], time_limit: float | None, offer: dict[str, Any]) -> None:
    import signal

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with await _connect(name, url) as unit:

        async def answer(request: Request) -> None:
            await _answer(request, argv, time_limit)

        try:
            unit.on_request(**offer)(answer)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        await unit.ready()
        print(f"{name} answers", file=sys.stderr, flush=True)
        await stop.wait()


async def _answer(request: Request, argv: list[str], time_limit: float | None) -> None:
    environment = {**os.environ, "MUF_UNIT": request.unit, "MUF_ID": request.id}
    pipe = asyncio.subprocess.PIPE
    try:
        child = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)
    except (OSError, ValueError) as error:
        await request.fail(f"{argv[0]}: {getattr(error, 'strerror', None) or error}")
        return
    try:
        async with asyncio.timeout(time_limit):
            out, err = await _said(child, request.raw)
            code = await child.wait()
    except TimeoutError:
        await request.fail(f"the command took longer than {time_limit:g} s")
        return
    except _TooMuch as error:
        await request.fail(str(error))
        return
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if code == 0:
        await request.reply(out)
    else:
        await request.fail(err or f"exit code {code}")


async def _said(child: asyncio.subprocess.Process, asked: bytes) -> tuple[bytes, bytes]:
    assert child.stdout is not None
    assert child.stderr is not None
    parts = [asyncio.create_task(part) for part in (_all_of(child.stdout), _all_of(child.stderr))]
    feeding = asyncio.create_task(_feed(child, asked))
    try:
        out, err = await asyncio.gather(*parts)
        return out, err
    finally:
        for task in (*parts, feeding):
            task.cancel()
        await asyncio.wait([*parts, feeding])


class _TooMuch(Exception):
    pass


async def _feed(child: asyncio.subprocess.Process, data: bytes) -> None:
    assert child.stdin is not None
    try:
        child.stdin.write(data)
        await child.stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        return  # it need not read what it is asked
    finally:
        child.stdin.close()


async def _all_of(stream: asyncio.StreamReader) -> bytes:
    parts, size = [], 0
    while part := await stream.read(1 << 16):
        size += len(part)
        if size > OUTPUT_BYTES_MAX:
            raise _TooMuch(f"the command wrote more than {OUTPUT_BYTES_MAX} bytes")
        parts.append(part)
    return b"".join(parts)
