"""Three nodes of one cluster, in one program so that it can be watched: `python examples/cluster.py`.

In earnest each would be a process, on a machine of its own: `mpreg serve app.py --cluster demo --join …`.
"""

import asyncio

from mpreg import MpregError, Node, Settings, connect


def member(name: str, *join: str) -> Node:
    """A node with one function that only it has, and one that all have."""
    node = Node(name, Settings(ws="off", tcp=0, store="off", cluster="demo", join=join, membership="local"))

    @node.function(name=f"{name}.greet")
    def greet(who: str) -> str:
        return f"{name} greets {who}"

    @node.function
    def whoami() -> str:
        return name

    return node


async def main() -> None:
    async with member("red") as red:
        seed = red.listeners["tcp"]
        async with member("green", seed) as green, member("blue", seed), connect(green) as client:
            while len(await client.call("mpreg.nodes")) < 3 or not await knows(client, "blue.greet"):
                await asyncio.sleep(0.05)
            print(await client.call("red.greet", "you"))
            print(await client.call("blue.greet", "you"))
            print("own functions run at home:", await client.call("whoami"))
            async with client.subscribe("news.#") as news, connect(red) as elsewhere:
                await elsewhere.publish("news.today", "published at red, heard at green")
                print((await anext(news)).payload)
        async with connect(red) as client:
            try:
                await client.call("green.greet", "you")
            except MpregError as error:
                print("green has left:", error.code)


async def knows(client, function: str) -> bool:
    return any(each["name"] == function for each in await client.call("mpreg.functions"))


if __name__ == "__main__":
    asyncio.run(main())
