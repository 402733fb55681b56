"""Between a node and units: its functions answer requests, its clients can ask units, and MUF's events become topics.

    node.beside(Bridge(node, "GATE"))           # or: mpreg serve app.py --muf --muf-unit GATE

A request whose id begins with `<function>.` is a call: a JSON array in the value is its arguments, an object its
keyword arguments, any other JSON its one argument, an empty value none. The answer is the result as JSON; ERR is
`{"code", "type", "message"}`. The other way, clients call the node's function `muf.request`.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from mpreg.apps.muf import names
from mpreg.apps.muf.codecs import JSON
from mpreg.apps.muf.errors import MufRemoteError
from mpreg.apps.muf.events import Events
from mpreg.apps.muf.names import Name
from mpreg.apps.muf.request import Request
from mpreg.apps.muf.unit import Unit
from mpreg.client import Client, connect
from mpreg.errors import ConfigError, MpregError, MufError, RpcError

if TYPE_CHECKING:
    from mpreg.node import Node

log = logging.getLogger(__name__)

UNIT: Final = "MPREG"
REQUEST: Final = "muf.request"
OWN: Final = "mpreg."
"""Functions by which nodes are run are not for whoever can write to the store."""
CONCURRENCY: Final = 256
LEARN_S: Final = 1.0
"""How often at most the node is asked for new functions, while requests come that no function is known for."""


class Bridge:
    """Nodes that share a store and a unit name share the work: each request is called by one of them. All functions
    of the cluster can be called, but for those of the nodes themselves (`mpreg.…`).

    Make it before the node starts (it adds a function), and hand it to `node.beside`, or enter it after.
    """

    def __init__(self, node: Node, unit: str = UNIT, *, topics: bool = False) -> None:
        self._node = node
        self._name = names.check("unit", unit)
        self._topics = topics
        self._unit: Unit | None = None
        self._client: Client | None = None
        self._functions: frozenset[str] = frozenset()
        self._unknown = asyncio.Event()
        self._open = AsyncExitStack()
        node.function(name=REQUEST)(self._request)

    async def __aenter__(self) -> Self:
        store = self._node.store
        if store is None:
            raise ConfigError("CONFIG_INVALID", "MUF needs a store, but the node's is off", setting="store")
        async with AsyncExitStack() as undo:
            self._client = await undo.enter_async_context(connect(self._node))
            await self._learn(self._client)
            unit = await Unit.connect(self._name, store, codec=JSON)
            undo.push_async_callback(unit.close, self._node.settings.grace_s)
            unit.on_request(group=self._name, when=self._is_call, concurrency=CONCURRENCY)(self._call)
            await unit.ready()
            if self._topics:
                patterns = [names.glob(None, status) for status in ("REQ", "RES", "ERR", "KEEP")]
                events = Events(store, self._name, self._publish, lambda: None, patterns=patterns)
                undo.push_async_callback(events.close)
                await events.start()
            learning = asyncio.create_task(self._keep_learning(self._client, unit), name="muf functions")
            undo.push_async_callback(_end, learning)
            self._unit = unit
            self._open = undo.pop_all()
        log.info("MUF: the unit %s answers for %d functions", self._name, len(self._functions))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._unit = None
        await self._open.aclose()

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
        if self._function_of(name.id) is not None:
            return True
        if "." in name.id:
            self._unknown.set()
        return False

    async def _learn(self, client: Client) -> bool:
        """Whether the functions of the cluster are others than they were."""
        found = frozenset(
            each["name"]
            for each in await client.call("mpreg.functions")
            if not each["name"].startswith(OWN) and each["name"] != REQUEST
        )
        is_new, self._functions = found != self._functions, found
        return is_new

    async def _keep_learning(self, client: Client, unit: Unit) -> None:
        """A request for a function that came after the start is found once the function is known."""
        while True:
            await self._unknown.wait()
            self._unknown.clear()
            try:
                if await self._learn(client):
                    unit.look_again()
            except MpregError as error:
                log.warning("The functions of the node could not be read: %s", error)
                self._unknown.set()
            await asyncio.sleep(LEARN_S)

    async def _call(self, request: Request) -> None:
        assert self._client is not None
        fun = self._function_of(request.id)
        try:
            if fun is None:  # it went between the event and now
                raise RpcError("RPC_FUNCTION_NOT_FOUND", f"No function for {request.id}")
            args, kwargs = _arguments(request)
            await request.reply(await self._client.call(fun, *args, **kwargs))
        except MpregError as error:
            said = {"code": error.code, "type": error.type, "message": error.message}
            await request.fail(msgspec.json.encode(said))

    # --- clients ask units --------------------------------------------------------------------------------------

    async def _request(
        self,
        data: Any,
        target: str | None = None,
        id: str | None = None,
        ttl: float | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Ask MUF units: `data` goes out as JSON, and what comes back is read as JSON, or as text if it is none."""
        if self._unit is None:
            raise ConfigError("CONFIG_INVALID", "the bridge to MUF is not open", setting="muf")
        body = msgspec.json.encode(data)
        try:
            answer: bytes = await self._unit.request(
                body, target=target, id=id, ttl=ttl, timeout=timeout, codec="bytes"
            )
        except MufRemoteError as error:
            said = error.payload.decode("utf-8", "backslashreplace")
            raise MufError(error.code, error.message, state_changed=None, payload=said, **error.details) from None
        except ValueError as error:
            raise RpcError("RPC_INVALID_ARGUMENT", str(error)) from None
        try:
            return msgspec.json.decode(answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return answer.decode("utf-8", "backslashreplace")

    # --- events as topics ---------------------------------------------------------------------------------------

    def _publish(self, name: Name) -> None:
        try:
            self._node.publish(topic_of(name), {"unit": name.unit, "status": name.status, "id": name.id})
        except MpregError as error:
            log.warning("%s could not be published: %s", name.key.decode(), error)


def add(node: Node) -> None:
    """As the node's settings say: `muf_unit`, `muf_topics`."""
    settings = node.settings
    try:
        bridge = Bridge(node, settings.muf_unit, topics=settings.muf_topics)
    except ValueError as error:
        raise ConfigError("CONFIG_INVALID", f"muf_unit: {error}", setting="muf_unit") from None
    node.beside(bridge)


def _arguments(request: Request) -> tuple[list[Any], dict[str, Any]]:
    if not request.raw:
        return [], {}
    try:
        data = request.data
    except ValueError as error:
        raise RpcError("RPC_INVALID_ARGUMENT", str(error)) from None
    if isinstance(data, dict):
        return [], data
    return data if isinstance(data, list) else [data], {}


def topic_of(name: Name) -> str:
    """`muf.<status>.<unit>`; what a topic's level can't hold is replaced by `_`."""
    level = "".join("_" if c in ".*#" else c for c in name.unit)
    return f"muf.{name.status}.{level}"


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
