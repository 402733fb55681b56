"""Real nodes under calls and publishes while one thing after the other goes wrong: no wrong answer, no call without an
end, a node's own functions always work, and afterwards everything does again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from mpreg.client import Client
from mpreg.errors import MpregError
from mpreg.testing import BAD, GOOD, Conditions, Nodes, simulate

NAMES = ("a", "b", "c", "d")
CALL_TIMEOUT_S = 5.0
FAULTS = 6
EXPECTED = {
    "TRANSPORT_CONNECTION_LOST",
    "TRANSPORT_CONNECTION_REFUSED",
    "TIMEOUT_EXCEEDED",
    "TIMEOUT_CONNECT",
    "RPC_FUNCTION_NOT_FOUND",
    "RESOURCE_SHUTTING_DOWN",
}
"""How a call may fail while nodes die and links break."""


def functions_of(name: str) -> list[Callable[..., Awaitable[str]]]:
    async def own(number: int) -> str:
        await asyncio.sleep(0.05)
        return f"{name} has {number}"

    async def everyones(number: int) -> str:
        return f"somebody has {number}"

    own.__name__ = own.__qualname__ = f"of_{name}"
    everyones.__name__ = everyones.__qualname__ = "everyones"
    return [own, everyones]


class Load:
    """Calls from a client of each node, which asks no other one, to the functions of all, again and again."""

    def __init__(self, nodes: Nodes, seed: int) -> None:
        self.nodes = nodes
        self.chance = random.Random(f"load/{seed}")
        self.disturbed: set[str] = set()
        """Nodes that are, or were just now, not running."""
        self.answers = 0
        self.failures = 0

    async def call(self, near: str, client: Client) -> None:
        while True:
            far = self.chance.choice(NAMES)
            number = self.chance.randrange(1_000_000)
            fun, expected = (
                (f"of_{far}", f"{far} has {number}")
                if self.chance.random() < 0.7
                else ("everyones", f"somebody has {number}")
            )
            began = self.nodes.now
            is_calm = near not in self.disturbed
            try:
                answer = await client.call(fun, number, timeout=CALL_TIMEOUT_S)
            except MpregError as error:
                self.failures += 1
                own = far == near or fun == "everyones"
                if error.code not in EXPECTED or (own and is_calm and near not in self.disturbed):
                    raise AssertionError(f"{near} could not call {fun}: {error}") from None
            else:
                self.answers += 1
                assert answer == expected
            assert self.nodes.now - began < CALL_TIMEOUT_S + 2, "a call had no end"
            await asyncio.sleep(0.1)


async def disturb(nodes: Nodes, load: Load, chance: random.Random) -> None:
    for _ in range(FAULTS):
        kind = chance.choice(["crash", "gone", "pause", "partition", "one way", "restart"])
        name = chance.choice([each for each in NAMES if each in nodes.running])
        pause_s = chance.uniform(1, 15)
        if kind in ("crash", "gone", "restart"):
            load.disturbed.add(name)
            if kind == "restart":
                await nodes.stop(name)
            else:
                nodes.crash(name, silently=kind == "gone")
            await asyncio.sleep(pause_s)
            await nodes.restart(name)
        elif kind == "pause":
            load.disturbed.add(name)
            nodes.pause(name)
            await asyncio.sleep(pause_s)
            nodes.resume(name)
        else:
            others = [each for each in NAMES if each != name]
            few = chance.sample(others, chance.randrange(1, len(others)))
            if kind == "partition":
                nodes.partition([name], few)
            else:
                nodes.block([name], few)
            await asyncio.sleep(pause_s)
            nodes.heal()
        await asyncio.sleep(CALL_TIMEOUT_S + 12)  # what was under way has ended, clients have reconnected
        load.disturbed.discard(name)
        await asyncio.sleep(chance.uniform(0, 5))


async def whole(nodes: Nodes, seed: int, conditions: Conditions) -> tuple[int, int]:
    chance = random.Random(f"faults/{seed}")
    for name in NAMES:
        await nodes.start(name, *functions_of(name), membership="local")
    await nodes.until(nodes.agreed)
    nodes.conditions = conditions
    load = Load(nodes, seed)
    clients = {name: await nodes.client(name, discover_s=0) for name in NAMES}
    calling = [asyncio.ensure_future(load.call(name, client)) for name, client in clients.items()]
    disturbing = asyncio.ensure_future(disturb(nodes, load, chance))
    try:
        done, _ = await asyncio.wait([disturbing, *calling], return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for task in (disturbing, *calling):
            task.cancel()
        await asyncio.gather(disturbing, *calling, return_exceptions=True)
    nodes.conditions = GOOD
    await nodes.until(nodes.agreed, 120)
    await asyncio.sleep(30)
    for name, client in clients.items():
        for far in NAMES:
            assert await client.call(f"of_{far}", 1) == f"{far} has 1", f"{far} from {name}"
    for client in clients.values():
        await client.close()
    return load.answers, load.failures


@pytest.mark.parametrize("seed", range(6))
def test_calls_survive_whatever_happens_to_nodes(seed: int) -> None:
    conditions = (GOOD, BAD)[seed % 2]
    answers, failures = simulate(lambda nodes: whole(nodes, seed, conditions), seed=seed)
    assert answers > 500
    assert failures < answers / 4


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seeds", [range(at, at + 20) for at in range(100, 300, 20)], ids=str)
def test_calls_survive_whatever_happens_to_nodes_two_hundred_times(seeds: range) -> None:
    for seed in seeds:
        simulate(lambda nodes, seed=seed: whole(nodes, seed, (GOOD, BAD)[seed % 2]), seed=seed)
