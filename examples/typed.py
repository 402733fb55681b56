"""Arguments and results with types: what does not fit is refused before the function runs.

Everything happens in this one process, without sockets: so can a test of your own functions.
"""

import asyncio
from typing import Annotated

import msgspec

from mpreg import MpregError, Node, Settings, connect


class Item(msgspec.Struct):
    name: str
    price: Annotated[float, msgspec.Meta(ge=0)]


class Receipt(msgspec.Struct):
    items: int
    total: float


node = Node("shop", Settings(ws="off", tcp="off", store="off"))


@node.function(name="shop.checkout", locs=["eu"], idempotent=True)
def checkout(items: list[Item]) -> Receipt:
    """Sync functions run in a thread, so one that blocks holds up nobody else."""
    return Receipt(len(items), sum(item.price for item in items))


async def main() -> None:
    async with node, connect(node) as mpreg:
        cart = [Item("tea", 4.5), Item("cup", 8)]
        print(await mpreg.call("shop.checkout", cart, locs=["eu"], result_type=Receipt))
        try:
            await mpreg.call("shop.checkout", [{"name": "tea", "price": -1}])
        except MpregError as error:
            print(error.code, error.details["path"])


if __name__ == "__main__":
    asyncio.run(main())
