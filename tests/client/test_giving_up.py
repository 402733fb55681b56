"""A program that gives up while it connects is not kept waiting, at whatever moment it does so."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import uvloop

from mpreg.client import connect
from mpreg.node import Node, Settings

TURNS = 25
"""Of the event loop; the connection is there well before."""


async def give_up_at_every_turn(scheme: str) -> None:
    node = Node("one", Settings(ws=0, tcp=0, store="off", grace_s=0))
    async with node:
        for turns in [*range(TURNS)] * 20:
            connecting = asyncio.create_task(connect(node.listeners[scheme]).connected())
            for _ in range(turns):
                await asyncio.sleep(0)
            connecting.cancel()
            async with asyncio.timeout(20):
                with contextlib.suppress(asyncio.CancelledError):
                    await (await connecting).close()
        async with connect(node.listeners[scheme]) as client:
            assert await client.call("echo", 1) == 1


@pytest.mark.parametrize("scheme", ["ws", "tcp"])
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_it_ends_at_once(scheme: str, loop: str) -> None:
    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(give_up_at_every_turn(scheme))
