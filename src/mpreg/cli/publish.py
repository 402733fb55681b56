"""`mpreg publish TOPIC [PAYLOAD]`: one message, or a message for each line of stdin."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import rich_click as click

from mpreg.cli.call import value_of
from mpreg.cli.keys_progress import progress_bar
from mpreg.cli.node_options import connecting, json_option, node_options, run, write_json
from mpreg.errors import MpregError

if TYPE_CHECKING:
    from mpreg.client import Client

UNDER_WAY_MAX: Final = 256
"""Messages whose acknowledgement has not come yet."""
LINE_BYTES_MAX: Final = 20_000_000
READ_BYTES: Final = 64 * 1024
CHUNKS_AHEAD: Final = 4


@click.command()
@click.argument("topic")
@click.argument("payload", required=False)
@click.option("--text", is_flag=True, help="Payloads are text, also those that could be read as JSON.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header; may be given several times.")
@click.option("--reply-to", metavar="TOPIC", help="Where answers should go.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="At most N messages a second.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    help="Seconds that the node may take to acknowledge a message.",
)
@node_options
@json_option
def publish(
    topic: str,
    payload: str | None,
    text: bool,
    headers: tuple[str, ...],
    reply_to: str | None,
    rate: float | None,
    timeout: float,
    as_json: bool,
    **where: Any,
) -> None:
    """Publish PAYLOAD to TOPIC; without PAYLOAD, or with `-`, every line of stdin is a message.

    A payload is JSON, or else plain text: `3` is a number, `"3"` and `three` are text. Every message is acknowledged by
    the node; if the connection breaks, it is sent again and published once.
    """
    begun = time.perf_counter()
    common = {"headers": _headers(headers), "reply_to": reply_to, "ack": True, "timeout": timeout}
    one = None if payload in (None, "-") else payload
    count = run(_publish(where, topic, one, text, rate, common))
    seconds = time.perf_counter() - begun
    if as_json:
        write_json({"topic": topic, "published": count, "seconds": round(seconds, 3)})
    elif one is None:
        print(f"{count:,} messages published in {seconds:.1f} s", file=sys.stderr)


def _headers(given: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{each!r} is not NAME=VALUE", param_hint="--header")
        if name in found:
            raise click.BadParameter(f"{name} is given twice", param_hint="--header")
        found[name] = value_of(value)
    return found


async def _publish(
    where: dict[str, Any], topic: str, payload: str | None, text: bool, rate: float | None, common: dict[str, Any]
) -> int:
    from mpreg.wire.encoding import Encoding

    async with connecting(**where, encoding=Encoding.JSON) as client:
        if payload is not None:
            await client.publish(topic, payload if text else value_of(payload), **common)
            return 1
        return await _Lines(client, topic, text, rate, common).publish_all()


class _Lines:
    """Many messages, with a bounded number of them under way."""

    def __init__(self, client: Client, topic: str, text: bool, rate: float | None, common: Mapping[str, Any]) -> None:
        self._client = client
        self._topic = topic
        self._text = text
        self._rate = rate
        self._common = common
        self._room = asyncio.Semaphore(UNDER_WAY_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: MpregError | None = None
        self._reading: asyncio.Task[None]
        self._published = 0

    async def publish_all(self) -> int:
        with progress_bar("publishing") as show:
            self._reading = asyncio.create_task(self._read(show))
            try:
                await asyncio.wait({self._reading})
                if not self._reading.cancelled():
                    self._reading.result()
            finally:
                self._reading.cancel()
                if self._tasks:
                    await asyncio.wait(self._tasks)
                show(self._published)
        if self._error is not None:
            print(f"{self._published:,} messages were published", file=sys.stderr)
            raise self._error
        return self._published

    async def _read(self, show: Any) -> None:
        begun, number = time.monotonic(), 0
        async for line in lines_of_stdin():
            number += 1
            if self._rate is not None:
                await asyncio.sleep(begun + (number - 1) / self._rate - time.monotonic())
            await self._room.acquire()
            task = asyncio.create_task(self._one(number, line if self._text else value_of(line)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            show(self._published)

    async def _one(self, number: int, payload: Any) -> None:
        try:
            await self._client.publish(self._topic, payload, **self._common)
            self._published += 1
        except MpregError as error:
            if self._error is None:
                error.message = f"line {number}: {error.message}"
                self._error = error
                self._reading.cancel()  # it may wait for a line for long
        finally:
            self._room.release()


async def lines_of_stdin() -> AsyncIterator[str]:
    """As they come. They are read in a thread, a little ahead, which does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue(CHUNKS_AHEAD)

    def read() -> None:
        data = b"?"
        try:
            while data:
                data = os.read(sys.stdin.fileno(), READ_BYTES)
                asyncio.run_coroutine_threadsafe(chunks.put(data), loop).result()
        except RuntimeError:  # the loop is closed: nobody wants more
            return

    threading.Thread(target=read, name="mpreg-stdin", daemon=True).start()
    rest, number = b"", 0
    while chunk := await chunks.get():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            number += 1
            yield _decoded(line, number)
        if len(rest) > LINE_BYTES_MAX:
            raise click.ClickException(f"line {number + 1} of stdin is longer than {LINE_BYTES_MAX} bytes")
    if rest:
        yield _decoded(rest, number + 1)


def _decoded(line: bytes, number: int) -> str:
    try:
        return line.decode().removesuffix("\r")
    except UnicodeDecodeError:
        raise click.ClickException(f"line {number} of stdin is not valid UTF-8") from None
