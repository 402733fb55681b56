"""`mpreg queue schedule …`: messages that are sent again and again, as a cron expression says."""

from __future__ import annotations

import time
from typing import Any

import rich_click as click

from mpreg.cli.call import value_of
from mpreg.cli.node_options import connecting, json_option, node_options, run, write_json


@click.group()
def schedule() -> None:
    """Messages that are sent again and again: kept in the store, sent once by whichever node is alive."""


@schedule.command()
@click.argument("cron")
@click.argument("queue")
@click.argument("payload")
@click.option("--name", help="The same name again changes the schedule. [default: made of QUEUE and CRON]")
@click.option("--timezone", default="UTC", show_default=True, metavar="ZONE", help="Such as Europe/Berlin.")
@click.option("--topic", default="message", show_default=True)
@click.option("--priority", type=int, default=0, show_default=True)
@node_options
@json_option
def add(
    cron: str,
    queue: str,
    payload: str,
    name: str | None,
    timezone: str,
    topic: str,
    priority: int,
    as_json: bool,
    **where: Any,
) -> None:
    """Send PAYLOAD to QUEUE whenever CRON says: `"0 3 * * *"`, `"*/15 9-17 * * mon-fri"`, `@hourly`."""
    how = {"name": name, "timezone": timezone, "topic": topic, "priority": priority}
    made = run(_add(where, cron, queue, value_of(payload), how))
    if as_json:
        write_json({"schedule_name": made.schedule_name, "created": made.created, "next_at": made.next_at})
    else:
        print(f"{made.schedule_name}: next {_time(made.next_at)}")


async def _add(where: dict[str, Any], cron: str, queue: str, payload: Any, how: dict[str, Any]) -> Any:
    async with connecting(**where) as client:
        return await client.schedule(cron, queue, payload, **how)


@schedule.command()
@node_options
@json_option
def ls(as_json: bool, **where: Any) -> None:
    """All schedules, and when each is next due."""
    for one in run(_ls(where)):
        if as_json:
            write_json(one)
        else:
            print(f"{one['schedule_name']}  {one['cron']}  -> {one['queue_name']}  next {_time(one['next_at'])}")


async def _ls(where: dict[str, Any]) -> list[dict[str, Any]]:
    async with connecting(**where) as client:
        return await client.queues.schedules()


@schedule.command()
@click.argument("name")
@node_options
@json_option
def rm(name: str, as_json: bool, **where: Any) -> None:
    """End the schedule NAME."""
    deleted = run(_rm(where, name))
    if as_json:
        write_json({"schedule_name": name, "deleted": deleted})
    elif deleted:
        print(f"{name} has ended")
    else:
        raise click.ClickException(f"there is no schedule {name!r}")


async def _rm(where: dict[str, Any], name: str) -> bool:
    async with connecting(**where) as client:
        return await client.queues.unschedule(name)


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(seconds))
