"""A node in another language: sockets, MessagePack and HMAC, and nothing of ours."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import struct
from typing import Any, Self

import msgspec


class RawNode:
    """One TCP connection to a node. `handshake` makes it a link between nodes, if the secret is right."""

    def __init__(self, node_id: str, cluster_id: str = "test", secret: bytes = b"", run: str = "") -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.run = run or secrets.token_hex(8)
        self.nonce = secrets.token_hex(32)
        self._secret = secret

    async def dial(self, url: str) -> Self:
        host, _, port = url.removeprefix("tcp://").rpartition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        return self

    def send(self, message: dict[str, Any]) -> None:
        data = msgspec.msgpack.encode(message)
        self._writer.write(struct.pack(">I", len(data)) + data)

    def send_bytes(self, data: bytes) -> None:
        self._writer.write(data)

    async def receive(self) -> Any:
        """The next message; None when the node has closed the connection."""
        try:
            async with asyncio.timeout(10):
                while True:
                    (size,) = struct.unpack(">I", await self._reader.readexactly(4))
                    if size:
                        return msgspec.msgpack.decode(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def receive_of(self, kind: str) -> Any:
        """The next message of this role or what; others are passed over."""
        while (message := await self.receive()) is not None:
            if message.get("role", message.get("what")) == kind:
                return message
        return None

    def introduction(self, **changes: Any) -> dict[str, Any]:
        hello = {"what": "HELLO", "funs": [], "locs": [], "cluster_id": self.cluster_id, "node_id": self.node_id}
        return {**hello, "run": self.run, "nonce": self.nonce, **changes}

    def proof(self, theirs: dict[str, Any], **changes: Any) -> dict[str, Any]:
        """As a dialler; `funs` and the like may be given."""
        said: dict[str, Any] = {"funs": [], "locs": [], "advertised_urls": [], "offers": [], "started": 1.0}
        said |= {"incarnation": 0, "meta": {}, **changes}
        mine = [self.node_id, self.run, self.cluster_id, self.nonce]
        others = [theirs["node_id"], theirs["run"], theirs["cluster_id"], theirs["nonce"]]
        facts = [said[name] for name in ("advertised_urls", "funs", "locs", "offers", "started", "incarnation", "meta")]
        text = msgspec.msgpack.encode(["mpreg link 2", "dialler", mine, others, *facts])
        made = hmac.new(self._secret, text, hashlib.sha256).hexdigest()
        who = {"what": "HELLO", "cluster_id": self.cluster_id, "node_id": self.node_id, "run": self.run}
        return {**who, **said, "proof": made}

    async def handshake(self, url: str, **said: Any) -> Any:
        """The node's last HELLO, or its error."""
        await self.dial(url)
        self.send(self.introduction())
        theirs = await self.receive()
        if theirs is None or theirs.get("what") != "HELLO":
            return theirs
        self.send(self.proof(theirs, **said))
        return await self.receive()

    async def close(self) -> None:
        self._writer.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
