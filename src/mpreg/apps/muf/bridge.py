"""Between a node and units: its functions answer requests, its clients can ask units, and MUF's events become topics.

    async with Bridge(node, "GATE"): …          # or: mpreg serve app.py --muf GATE

A request whose id begins with `<function>.` is a call: a JSON array in the value is its arguments, an object its
keyword arguments, any other JSON its one argument, an empty value none. The answer is the result as JSON; ERR is
`{"code", "type", "message"}`. The other way, clients call the node's function `muf.request`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from mpreg.apps.muf import names
from mpreg.apps.muf.codecs import JSON
from mpreg.apps.muf.events import Events
from mpreg.apps.muf.names import Name
from mpreg.apps.muf.request import Request
from mpreg.apps.muf.unit import Unit
from mpreg.client import Client, connect
from mpreg.errors import ConfigError, MpregError

if TYPE_CHECKING:
    from mpreg.node import Node

UNIT: Final = "MPREG"
REQUEST: Final = "muf.request"
CONCURRENCY: Final = 256
TOLD_MAX: Final = 10_000


class Bridge:
    """Nodes that share a store and a unit name share the work: each request is called by one of them.

    Make it before the node starts (it adds a function), and enter it after.
    """

    def __init__(self, node: Node, unit: str = UNIT, *, topics: bool = False) -> None:
        self.dropped = 0
        """Events that became no message because the node was too busy."""
        self._node = node
        self._name = names.check("unit", unit)
        self._topics = topics
        self._unit: Unit | None = None
        self._client: Client | None = None
        self._functions: frozenset[str] = frozenset()
        self._told: asyncio.Queue[Name] = asyncio.Queue(TOLD_MAX)
        self._stack: list[asyncio.Task[None]] = []
        self._events: Events | None = None
        node.function(name=REQUEST)(self._request)

    async def __aenter__(self) -> Self:
        store = self._node.store
        if store is None:
            raise ConfigError("CONFIG_INVALID", "MUF needs a store, but the node's is off", setting="store")
        self._client = await connect(self._node)
        self._functions = frozenset(found["name"] for found in await self._client.call("mpreg.functions"))
        self._unit = await Unit.connect(self._name, store, codec=JSON)
        self._unit.on_request(group=self._name, when=self._is_call, concurrency=CONCURRENCY)(self._call)
        await self._unit.ready()
        if self._topics:
            patterns = [names.glob(None, status) for status in ("REQ", "RES", "ERR", "KEEP")]
            self._events = Events(store, self._name, self._tell, lambda: None, patterns=patterns)
            await self._events.start()
            self._stack.append(asyncio.create_task(self._publish(self._client), name="muf topics"))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._stack:
            task.cancel()
            await asyncio.wait([task])
        if self._events is not None:
            await self._events.close()
        if self._unit is not None:
            await self._unit.close()
        if self._client is not None:
            await self._client.close()

    # --- units call functions -----------------------------------------------------------------------------------

    def _function_of(self, id: str) -> str | None:
        """The longest function name that the id begins with, for names have dots too."""
        end = id.rfind(".")
        while end > 0:
            if id[:end] in self._functions:
                return id[:end]
            end = id.rfind(".", 0, end)
        return None

    def _is_call(self, name: Name) -> bool:
        return self._function_of(name.id) is not None

    async def _call(self, request: Request) -> None:
        assert self._client is not None
        fun = self._function_of(request.id)
        assert fun is not None, "checked before it was taken"
        try:
            data = request.data if request.raw else []
            args = data if isinstance(data, list) else () if isinstance(data, dict) else (data,)
            kwargs = data if isinstance(data, dict) else {}
            await request.reply(await self._client.call(fun, *args, **kwargs))
        except MpregError as error:
            said = {"code": error.code, "type": error.type, "message": error.message}
            await request.fail(msgspec.json.encode(said))

    # --- clients ask units --------------------------------------------------------------------------------------

    async def _request(
        self, data: Any, target: str | None = None, ttl: float | None = None, timeout: float | None = None
    ) -> Any:
        """Ask MUF units: `data` goes out as JSON, and what comes back is read as JSON, or as text if it is none."""
        if self._unit is None:
            raise ConfigError("CONFIG_INVALID", "the bridge to MUF is not open", setting="muf")
        answer: bytes = await self._unit.request(
            msgspec.json.encode(data), target=target, ttl=ttl, timeout=timeout, codec="bytes"
        )
        try:
            return msgspec.json.decode(answer)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return answer.decode("utf-8", "backslashreplace")

    # --- events as topics ---------------------------------------------------------------------------------------

    def _tell(self, name: Name) -> None:
        if self._told.full():
            self.dropped += 1
        else:
            self._told.put_nowait(name)

    async def _publish(self, client: Client) -> None:
        while True:
            name = await self._told.get()
            await client.publish(topic_of(name), {"unit": name.unit, "status": name.status, "id": name.id})


def topic_of(name: Name) -> str:
    """`muf.<status>.<unit>`; what a topic's level can't hold is replaced by `_`."""
    level = "".join("_" if c in ".*#" else c for c in name.unit)
    return f"muf.{name.status}.{level}"
