"""`mpreg queue send|receive|peek`: messages from the shell and to it, a JSON value a line."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec
import rich_click as click

from mpreg.cli.call import value_of
from mpreg.cli.keys_progress import progress_bar
from mpreg.cli.node_options import connecting, json_option, node_options, run, write_json
from mpreg.cli.publish import lines_of_stdin
from mpreg.errors import MpregError

if TYPE_CHECKING:
    from mpreg.client import Message, Queue

UNDER_WAY_MAX: Final = 1_000


@click.command()
@click.argument("name")
@click.argument("payload", required=False)
@click.option("--topic", default="message", show_default=True)
@click.option("--text", is_flag=True, help="Payloads are text, also those that could be read as JSON.")
@click.option("--priority", type=int, default=0, show_default=True)
@click.option("--group", default="", help="In a fifo queue: what is kept in order.")
@click.option(
    "--delay", type=click.FloatRange(min=0), default=0.0, metavar="S", help="Seconds until it may be received."
)
@click.option("--ttl", type=click.FloatRange(min=0), metavar="S", help="Seconds that it is of use.")
@click.option(
    "--guarantee",
    type=click.Choice(["at_least_once", "broadcast", "quorum", "fire_and_forget"]),
    default="at_least_once",
    show_default=True,
)
@click.option("--dedup-id", help="Of one message: the same one again is not stored twice.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="May be given several times.")
@node_options
@json_option
def send(
    name: str,
    payload: str | None,
    text: bool,
    headers: tuple[str, ...],
    dedup_id: str | None,
    as_json: bool,
    topic: str,
    priority: int,
    group: str,
    delay: float,
    ttl: float | None,
    guarantee: str,
    **where: Any,
) -> None:
    """Send PAYLOAD to the queue NAME; without PAYLOAD, or with `-`, every line of stdin is a message.

    A payload is JSON, or else plain text. It is done when the store has the message.
    """
    how: dict[str, Any] = {
        "topic": topic,
        "priority": priority,
        "group": group,
        "delay": delay,
        "ttl": ttl,
        "guarantee": guarantee,
        "headers": _headers(headers),
    }
    if payload in (None, "-"):
        if dedup_id is not None:
            raise click.UsageError("--dedup-id is of one message, so give PAYLOAD")
        sent = run(_send_lines(where, name, text, how))
        if as_json:
            write_json({"queue_name": name, "sent": sent})
        else:
            print(f"{sent:,} messages are stored")
        return
    assert payload is not None
    receipt = run(_send(where, name, payload if text else value_of(payload), {**how, "dedup_id": dedup_id}))
    if as_json:
        write_json({"queue_name": name, **receipt})
    else:
        print(f"{receipt['message_id']} ({receipt['durability']}{', a duplicate' if receipt['duplicate'] else ''})")


def _headers(given: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key or key in found:
            raise click.BadParameter(f"{each!r} is not NAME=VALUE, or is there twice", param_hint="--header")
        found[key] = value
    return found


async def _send(where: dict[str, Any], name: str, payload: Any, how: dict[str, Any]) -> dict[str, Any]:
    async with _json_client(where) as client:
        receipt: dict[str, Any] = msgspec.to_builtins(await client.queue(name).send(payload, **how))
        return receipt


def _json_client(where: dict[str, Any]) -> Any:
    """JSON, so that every payload can be printed."""
    from mpreg.wire.encoding import Encoding

    return connecting(**where, encoding=Encoding.JSON)


async def _send_lines(where: dict[str, Any], name: str, text: bool, how: dict[str, Any]) -> int:
    async with _json_client(where) as client:
        queue: Queue = client.queue(name)
        sent = number = 0
        with progress_bar("sending") as show:
            under_way: list[Any] = []
            try:
                async for line in lines_of_stdin():
                    number += 1
                    under_way.append(queue.send(line if text else value_of(line), **how))
                    if len(under_way) >= UNDER_WAY_MAX:
                        sent += await _stored(under_way, number)
                        show(sent)
                        under_way = []
                return sent + await _stored(under_way, number)
            except MpregError:
                print(f"{sent:,} messages are stored", file=sys.stderr)
                raise


async def _stored(sent: list[Any], last: int) -> int:
    results = await asyncio.gather(*sent, return_exceptions=True)
    for place, result in enumerate(results):
        if isinstance(result, MpregError):
            result.message = f"line {last - len(results) + place + 1}: {result.message}"
            raise result
        if isinstance(result, BaseException):
            raise result
    return len(results)


@click.command()
@click.argument("name")
@click.option("--count", type=click.IntRange(min=1), default=1, show_default=True, metavar="N")
@click.option("--follow", is_flag=True, help="Receive until Ctrl-C.")
@click.option("--topic", "topics", multiple=True, metavar="PATTERN", help="Of these topics only. [default: #]")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    metavar="S",
    help="Seconds for the next one.",
)
@click.option("--keep", is_flag=True, help="Give each back instead of acknowledging it; it counts as a delivery.")
@node_options
@json_option
def receive(
    name: str,
    count: int,
    follow: bool,
    topics: tuple[str, ...],
    wait: float,
    keep: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Receive messages of the queue NAME, print each payload on a line (with --json all of the message), and
    acknowledge it once it is printed. Exit code 1 if nothing came.
    """
    received = run(_receive(where, name, None if follow else count, topics or ("#",), wait, keep, as_json))
    sys.exit(0 if received or follow else 1)


async def _receive(
    where: dict[str, Any], name: str, count: int | None, topics: tuple[str, ...], wait: float, keep: bool, as_json: bool
) -> int:
    received = 0
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with _json_client(where) as client:
        prefetch = 32 if count is None else min(count, 32)
        async with client.queue(name).receive(topics, prefetch=prefetch) as messages:
            while count is None or received < count:
                message = await _next(messages, stop, None if count is None else wait)
                if message is None:
                    break
                _print(message, as_json)
                await (message.retry(after=0, reason="looked at") if keep else message.ack())
                received += 1
    return received


async def _next(messages: Any, stop: asyncio.Event, wait: float | None) -> Message[Any] | None:
    taking, stopping = asyncio.ensure_future(messages.next()), asyncio.ensure_future(stop.wait())
    done, rest = await asyncio.wait({taking, stopping}, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    return taking.result() if taking in done else None


def _print(message: Message[Any], as_json: bool) -> None:
    if as_json:
        fields = ("message_id", "topic", "payload", "priority", "retry_count", "headers", "sent_at")
        write_json({field: getattr(message, field) for field in fields})
    else:
        print(_line(message.payload))
    sys.stdout.flush()


def _line(payload: Any) -> str:
    """Text as it is, as long as it is one line that does nothing to a terminal."""
    plain = isinstance(payload, str) and payload.isprintable()
    return payload if plain else json.dumps(payload, ensure_ascii=False, default=str)


@click.command()
@click.argument("name")
@click.option("--count", type=click.IntRange(1, 500), default=10, show_default=True, metavar="N")
@click.option("--topic", default="#", show_default=True, metavar="PATTERN")
@node_options
@json_option
def peek(name: str, count: int, topic: str, as_json: bool, **where: Any) -> None:
    """The next messages of the queue NAME, without taking them; of `NAME.dlq`, with why they are there."""
    for one in run(_peek(where, name, count, topic)):
        if as_json:
            write_json(msgspec.to_builtins(one))
        else:
            why = f"  # {one.why.get('reason')}, {one.why.get('deliveries')} deliveries" if one.why else ""
            print(f"{one.message_id}  {one.topic}  {_line(one.payload)}{why}")


async def _peek(where: dict[str, Any], name: str, count: int, topic: str) -> Any:
    async with _json_client(where) as client:
        return await client.queue(name).peek(count, topics=topic)
