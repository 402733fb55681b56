"""Sensors, an alarm and a late visitor, all by topics: `python examples/topics.py`.

The node of this program has two handlers of its own; a client publishes, another one comes late and asks for the
backlog.
"""

import asyncio

import msgspec

from mpreg import Message, Node, Settings, connect

node = Node("house", Settings(ws="off", tcp="off", store="off"))


class Reading(msgspec.Struct):
    celsius: float


@node.subscriber("sensors.heat.#")
async def watch(message: Message[Reading]) -> None:
    if message.payload.celsius > 30:
        room = message.topic.removeprefix("sensors.heat.")
        node.publish(f"alarms.{room}", f"{message.payload.celsius} degrees", headers={"urgent": True})


@node.subscriber("questions.rooms")
async def rooms(_: str) -> list[str]:
    return ["kitchen", "attic"]


async def main() -> None:
    async with node, connect(node) as sensors, connect(node) as visitor:
        async with visitor.subscribe("alarms.*") as alarms:
            for room, celsius in (("kitchen", 21.0), ("attic", 31.5)):
                await sensors.publish(f"sensors.heat.{room}", Reading(celsius))
            alarm = await anext(alarms)
            print(alarm.topic, alarm.payload, alarm.headers)
        async with visitor.subscribe("sensors.#", backlog=60, payload_type=Reading) as late:
            for _ in range(2):
                message = await anext(late)
                print(message.topic, message.payload.celsius)
        print((await visitor.query("questions.rooms", "which?")).payload)


if __name__ == "__main__":
    asyncio.run(main())
