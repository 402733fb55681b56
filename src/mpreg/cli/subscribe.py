"""`mpreg subscribe PATTERN…`: messages as they come, one a line."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import rich_click as click

from mpreg.cli.keys_options import printable
from mpreg.cli.node_options import connecting, json_option, node_options, run
from mpreg.errors import TimedOut

if TYPE_CHECKING:
    from mpreg.wire.received import Message


@click.command()
@click.argument("patterns", nargs=-1, required=True)
@click.option("--exact", is_flag=True, help="The patterns are topics, taken literally.")
@click.option(
    "--backlog", type=click.FloatRange(min=0), metavar="SECS", help="First what was published in the last SECS seconds."
)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after N messages. Default: until Ctrl-C.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECS",
    help="End after SECS seconds; a failure if --count messages have not come by then.",
)
@node_options
@json_option
def subscribe(
    patterns: tuple[str, ...],
    exact: bool,
    backlog: float | None,
    count: int | None,
    timeout: float | None,
    as_json: bool,
    **where: Any,
) -> None:
    """Show messages whose topic matches a PATTERN, as they come: the topic, then the payload.

    In a pattern `*` is one level, `#` any number of them; quote it, as shells know `*` and `#`, too. With --json each
    line is an object with all that is known of the message.
    """
    try:
        run(_subscribe(where, patterns, exact, backlog, count, timeout, as_json))
    except KeyboardInterrupt:
        if count is not None:
            raise
    except BrokenPipeError:  # who reads has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _subscribe(
    where: dict[str, Any],
    patterns: tuple[str, ...],
    exact: bool,
    backlog: float | None,
    count: int | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    from mpreg.wire.encoding import Encoding

    left = count
    try:
        async with (
            asyncio.timeout(timeout),
            connecting(**where, encoding=Encoding.JSON) as client,
            client.subscribe(*patterns, exact=exact, backlog=backlog) as messages,
        ):
            print(f"subscribed to {' '.join(patterns)}", file=sys.stderr, flush=True)
            try:
                async for batch in messages.batches():
                    wanted = batch if left is None else batch[:left]
                    sys.stdout.write("".join(map(as_object if as_json else as_line, wanted)))
                    sys.stdout.flush()
                    if left is not None:
                        left -= len(wanted)
                        if not left:
                            return
            finally:
                if messages.dropped:
                    print(f"{messages.dropped:,} messages were dropped: the output is too slow", file=sys.stderr)
                if messages.gaps:
                    print("messages may have been lost while there was no connection", file=sys.stderr)
    except TimeoutError:
        if left is not None and count is not None:
            raise TimedOut(
                "TIMEOUT_EXCEEDED", f"{count - left} of {count} messages came within {timeout:g} s"
            ) from None


def as_line(message: Message[Any]) -> str:
    """Nothing in it moves the cursor or colours the terminal."""
    payload = message.payload
    text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False, default=str)
    return f"{printable(message.topic)} {printable(text)}\n"


def as_object(message: Message[Any]) -> str:
    fields = {
        "topic": message.topic,
        "payload": message.payload,
        "timestamp": message.timestamp,
        "message_id": message.message_id,
        "publisher": message.publisher,
        "headers": message.headers,
        "reply_to": message.reply_to,
        "backlog": message.backlog,
    }
    return json.dumps(fields, ensure_ascii=False, default=str) + "\n"
