"""The node that the raw frames are sent to: `python -m tests.conformance.app READY_FILE CERT KEY [debug] [mutual]`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgspec

from mpreg.errors import QueueError
from mpreg.node import Node, Settings
from mpreg.node.run import run

node = Node("conformance")
gates: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
arrivals: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
counts: Counter[str] = Counter()


@node.function
async def add(a: int, b: int) -> int:
    return a + b


@node.function
def join(*parts: str, by: str = "-") -> str:
    return by.join(parts)


@node.function
def compute_fibonacci(n: int) -> int:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


@node.function
def user(id: int) -> dict[str, Any]:
    return {"id": id, "tags": ["a", "b"], "address": {"town": "Kyoto"}}


@node.function
async def count(name: str) -> int:
    counts[name] += 1
    return counts[name]


@node.function
async def counted_so_far(name: str) -> int:
    return counts[name]


@node.function
async def wait_at(gate: str) -> str:
    """Until someone opens it."""
    await gates[gate].wait()
    return gate


@node.function
async def open_gate(gate: str) -> None:
    gates[gate].set()


@node.function
async def meet(own: str, other: str) -> str:
    """Returns once the other one is here as well, so both must run at the same time."""
    arrivals[own].set()
    await arrivals[other].wait()
    return own


@node.function
async def never(name: str) -> None:
    """`arrived` and `cancelled` of this name say what became of it."""
    arrivals[name].set()
    try:
        await asyncio.Event().wait()
    finally:
        gates[name].set()


@node.function
async def arrived(name: str) -> bool:
    await arrivals[name].wait()
    return True


@node.function
async def cancelled(name: str) -> bool:
    await gates[name].wait()
    return True


@node.function
async def raises(text: str) -> None:
    raise ValueError(text)


@node.function
async def raises_ours() -> None:
    raise QueueError("QUEUE_FULL", "no room", limit=3)


@node.function
async def raises_ours_with_odd_details() -> None:
    raise QueueError("QUEUE_FULL", "no room", odd=object())


@node.function
async def raises_unreadable() -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    raise Unreadable


@node.function
def exits() -> None:
    sys.exit(3)


@node.function
def stops() -> None:
    raise StopIteration(1)


@node.function
async def interrupts() -> None:
    raise asyncio.CancelledError


@node.function
async def unencodable() -> Any:
    return object()


@node.function
async def endless() -> Any:
    inside: list[Any] = []
    inside.append(inside)
    return inside


@node.function
def blocks(seconds: float) -> str:
    time.sleep(seconds)  # what a careless function does: its thread hears nothing
    return "done"


@node.function
async def big(length: int) -> str:
    return "x" * length


@node.function
async def length_of(text: str) -> int:
    return len(text)


class Point(msgspec.Struct):
    x: int
    y: int


@node.function
async def distance(a: Point, b: Point) -> int:
    """How far a taxi drives."""
    return abs(a.x - b.x) + abs(a.y - b.y)


@node.function(locs=["gpu", "eu"])
async def render(scene: str) -> str:
    return f"{scene} rendered"


def main() -> None:
    ready_file, cert, key, *rest = sys.argv[1:]
    node.settings = Settings(
        name="conformance",
        ws=0,
        wss=0,
        tcp=0,
        tcps=0,
        tls_cert=cert,
        tls_key=key,
        store="embedded:",
        data_dir=str(Path(ready_file).parent / "data"),
        durability="memory",
        grace_s=1,
        debug="debug" in rest,
        tls_ca=str(Path(cert).parent / "ca.pem") if "mutual" in rest else None,
        tls_require_client_cert="mutual" in rest,
    )
    run(node, ready_file=ready_file)


if __name__ == "__main__":
    main()
