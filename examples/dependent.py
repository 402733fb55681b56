"""Commands that use each other's results, in one request: the node runs each as soon as its inputs are there."""

import asyncio

from mpreg import Node, Settings, command, connect

node = Node("pipeline", Settings(ws="off", tcp="off", store="off"))


@node.function
async def load(day: str) -> dict[str, list[int]]:
    await asyncio.sleep(0.01)  # from somewhere slow
    return {"values": [1, 2, 3] if day == "monday" else [4, 5]}


@node.function
async def total(values: list[int]) -> int:
    return sum(values)


@node.function
async def compare(a: int, b: int) -> str:
    return "more" if a > b else "less"


async def main() -> None:
    async with node, connect(node) as mpreg:
        monday = command("load", "monday")
        tuesday = command("load", "tuesday")  # runs at the same time as the other one
        answer = command("compare", command("total", monday["values"]), command("total", tuesday["values"]))
        print(await mpreg.request(answer))


if __name__ == "__main__":
    asyncio.run(main())
