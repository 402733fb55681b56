"""`mpreg queue …`: make queues, look at them, and keep them."""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from typing import TYPE_CHECKING, Any

import rich_click as click
from msgspec import UNSET

from mpreg.cli.keys_progress import progress_bar
from mpreg.cli.node_options import connecting, json_option, node_options, run, write_json

if TYPE_CHECKING:
    from mpreg.wire.queues import QueueStatisticsPayload

_ELSEWHERE = {
    "send": ("queue_messages", "Send a message, or a message for each line of stdin."),
    "receive": ("queue_messages", "Receive messages and acknowledge them."),
    "peek": ("queue_messages", "The next messages, without taking them."),
    "schedule": ("queue_schedule", "Messages that are sent again and again."),
}
Seconds = click.FloatRange(min=0)


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
def queue() -> None:
    """Queues: messages that are kept until somebody has dealt with them."""


@queue.command()
@click.argument("name")
@click.option(
    "--type",
    "queue_type",
    type=click.Choice(["priority", "fifo", "delay"]),
    default="priority",
    show_default=True,
    help="`priority`: higher first. `fifo`: as sent, one at a time in each group. `delay`: as they fall due.",
)
@click.option("--max-size", type=int, metavar="N", help="Messages that it may hold. [default: 100000]")
@click.option("--visibility", type=Seconds, metavar="S", help="How long a lease is. [default: 30]")
@click.option("--ack-timeout", type=Seconds, metavar="S", help="How long a lease can be extended. [default: 300]")
@click.option("--max-retries", type=int, metavar="N", help="Then a message is a dead letter. [default: 3]")
@click.option("--ttl", type=Seconds, metavar="S", help="How long a message is of use; 0: for ever. [default: 0]")
@click.option("--dedup", is_flag=True, help="Take the same topic and payload once within the window.")
@click.option("--dedup-window", type=Seconds, metavar="S", help="[default: 300]")
@click.option("--no-dead-letters", is_flag=True, help="Drop what fails for good.")
@node_options
@json_option
def create(
    name: str,
    queue_type: str,
    max_size: int | None,
    visibility: float | None,
    ack_timeout: float | None,
    max_retries: int | None,
    ttl: float | None,
    dedup: bool,
    dedup_window: float | None,
    no_dead_letters: bool,
    as_json: bool,
    **where: Any,
) -> None:
    """Make the queue NAME. It is fine if it is there with the same settings."""
    wanted = {
        "max_size": max_size,
        "default_visibility_timeout_seconds": visibility,
        "default_acknowledgment_timeout_seconds": ack_timeout,
        "max_retries": max_retries,
        "message_ttl_seconds": ttl,
        "deduplication_window_seconds": dedup_window,
        "enable_deduplication": dedup or None,
        "enable_dead_letter_queue": False if no_dead_letters else None,
    }
    settings = {field: value for field, value in wanted.items() if value is not None}
    created = run(_create(where, name, queue_type, settings))
    if as_json:
        write_json({"queue_name": name, "created": created})
    else:
        print(f"{name} is made" if created else f"{name} was there already")


async def _create(where: dict[str, Any], name: str, queue_type: str, settings: dict[str, Any]) -> bool:
    async with connecting(**where) as client:
        return await client.queue(name).create(queue_type, **settings)


@queue.command()
@click.argument("prefix", default="")
@node_options
@json_option
def ls(prefix: str, as_json: bool, **where: Any) -> None:
    """All queues, or those whose names begin with PREFIX."""
    found = run(_ls(where, prefix))
    if as_json:
        for one in found:
            write_json(one)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table()
    table.add_column("queue", overflow="fold")
    for column in ("type", "waiting", "in flight", "dead letters"):
        table.add_column(column, justify="left" if column == "type" else "right")
    for one in found:
        numbers = (one["current_queue_size"], one["current_in_flight_count"], one["dead_letters"])
        table.add_row(one["queue_name"], one["queue_type"], *(f"{number:,}" for number in numbers))
    Console().print(table)


async def _ls(where: dict[str, Any], prefix: str) -> list[dict[str, Any]]:
    import msgspec

    async with connecting(**where) as client:
        return [msgspec.to_builtins(one) async for one in client.queues.names(prefix)]


@queue.command()
@click.argument("name")
@node_options
@json_option
def stats(name: str, as_json: bool, **where: Any) -> None:
    """What the queue NAME holds, and what became of what it held."""
    found = run(_stats(where, name))
    if as_json:
        import msgspec

        write_json(msgspec.to_builtins(found))
        return
    for field in found.__struct_fields__:
        value = getattr(found, field)
        if field not in ("queue_name", "settings") and value is not UNSET:
            number = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
            print(f"{field.replace('_', ' '):34}{number:>14}")


async def _stats(where: dict[str, Any], name: str) -> QueueStatisticsPayload:
    async with connecting(**where) as client:
        return await client.queue(name).stats()


@queue.command()
@click.argument("name")
@click.option("--every", type=click.FloatRange(min=0.1), default=1.0, show_default=True, metavar="S")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="End after so many lines.")
@node_options
@json_option
def watch(name: str, every: float, count: int | None, as_json: bool, **where: Any) -> None:
    """What goes in and out of the queue NAME, a line for each second, until Ctrl-C."""
    run(_watch(where, name, every, count, as_json))


_WATCHED = ("messages_sent", "messages_acknowledged", "messages_failed", "messages_requeued")


async def _watch(where: dict[str, Any], name: str, every: float, count: int | None, as_json: bool) -> None:
    async with connecting(**where) as client:
        before, at = await client.queue(name).stats(), time.monotonic()
        if not as_json:
            print(f"{'waiting':>12}{'in flight':>12}{'sent/s':>12}{'done/s':>12}{'failed/s':>12}{'retried/s':>12}")
        while count is None or count > 0:
            await asyncio.sleep(every)
            now, then = await client.queue(name).stats(), time.monotonic()
            rates = [(getattr(now, field) - getattr(before, field)) / (then - at) for field in _WATCHED]
            if as_json:
                named = {f"{field}_per_s": round(rate, 3) for field, rate in zip(_WATCHED, rates, strict=True)}
                held = {field: getattr(now, field) for field in ("current_queue_size", "current_in_flight_count")}
                write_json({"queue_name": name, **held, **named})
                sys.stdout.flush()
            else:
                size, in_flight = now.current_queue_size, now.current_in_flight_count
                print(f"{size:>12,}{in_flight:>12,}" + "".join(f"{rate:>12,.0f}" for rate in rates), flush=True)
            before, at = now, then
            count = None if count is None else count - 1


@queue.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do it.")
@node_options
@json_option
def purge(name: str, yes: bool, as_json: bool, **where: Any) -> None:
    """Remove all messages of the queue NAME, those in flight too. Without --yes it only says how many there are."""
    _remove(where, name, "purge", yes, as_json)


@queue.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do it.")
@node_options
@json_option
def delete(name: str, yes: bool, as_json: bool, **where: Any) -> None:
    """Delete the queue NAME with its messages and dead letters. Without --yes it only says how many there are."""
    _remove(where, name, "delete", yes, as_json)


def _remove(where: dict[str, Any], name: str, verb: str, yes: bool, as_json: bool) -> None:
    removed = run(_removed(where, name, verb if yes else ""))
    if as_json:
        write_json({"queue_name": name, "removed" if yes else "would_remove": removed})
    elif yes:
        print(f"{name}: {removed:,} messages are gone" + (", and the queue" if verb == "delete" else ""))
    else:
        print(f"{name} has {removed:,} messages; --yes removes them")


async def _removed(where: dict[str, Any], name: str, verb: str) -> int:
    async with connecting(**where) as client:
        found = client.queue(name)
        if verb == "purge":
            return await found.purge()
        if verb == "delete":
            return await found.delete()
        now = await found.stats()
        assert now.current_queue_size is not UNSET
        assert now.current_in_flight_count is not UNSET
        return now.current_queue_size + now.current_in_flight_count


@queue.command()
@click.argument("name")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="No more than so many.")
@node_options
@json_option
def redrive(name: str, limit: int | None, as_json: bool, **where: Any) -> None:
    """Put the dead letters of the queue NAME back into it, as new messages."""
    redriven, left = run(_redrive(where, name, limit))
    if as_json:
        write_json({"queue_name": name, "redriven": redriven, "left": left})
    else:
        print(f"{redriven:,} dead letters are back in {name}, {left:,} are left")


async def _redrive(where: dict[str, Any], name: str, limit: int | None) -> tuple[int, int]:
    async with connecting(**where) as client:
        found = client.queue(name)
        left = (await found.stats()).dead_letters
        assert left is not UNSET
        redriven = 0
        with progress_bar("redriving", min(left, limit or left)) as show:
            async for part, remaining in found.redriving(limit):
                redriven, left = redriven + part, remaining
                show(redriven)
        return redriven, left
