"""Calls the functions of hello.py: `python examples/hello_client.py [URL]`."""

import asyncio
import sys

from mpreg import connect


async def main(url: str) -> None:
    async with connect(url) as mpreg:
        print(await mpreg.call("greet", "world"))
        sums = await asyncio.gather(*(mpreg.call("add", n, n) for n in range(5)))
        print(sums)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "ws://127.0.0.1:6666"))
