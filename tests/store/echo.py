"""A server of a few lines for what a real one can't be made to do on command: answer in splinters, fall silent, break
off in the middle of a reply, speak another protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import hiredis

HELLO = b"%3\r\n$6\r\nserver\r\n$6\r\nvalkey\r\n$7\r\nversion\r\n$5\r\n9.0.0\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n"


class Echo:
    """Answers ECHO with its argument and everything else with OK; `answers` may say otherwise."""

    def __init__(self) -> None:
        self.url = ""
        self.port = 0
        self.splinter: random.Random | None = None
        self.silent = False
        self.connections: list[asyncio.StreamWriter] = []
        self.commands: list[list[bytes]] = []
        self.answers: Callable[[list[bytes]], bytes | None] = lambda command: None
        self.connected = asyncio.Condition()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parser = hiredis.Reader()
        self.connections.append(writer)
        async with self.connected:
            self.connected.notify_all()
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                parser.feed(data)
                replies = []
                while (command := parser.gets()) is not False:
                    self.commands.append(command)
                    replies.append(self._reply(command))
                await self._write(writer, b"".join(replies))
        writer.close()

    def _reply(self, command: list[bytes]) -> bytes:
        if self.silent:
            return b""
        special = self.answers(command)
        if special is not None:
            return special
        match command[0].upper():
            case b"HELLO":
                return HELLO
            case b"ECHO":
                return b"$%d\r\n%s\r\n" % (len(command[1]), command[1])
        return b"+OK\r\n"

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if self.splinter is None:
            writer.write(data)
            return
        while data:
            cut = self.splinter.randint(1, 200)
            writer.write(data[:cut])
            await writer.drain()
            await asyncio.sleep(0)  # so that it leaves by itself
            data = data[cut:]

    def drop(self) -> None:
        for writer in self.connections:
            writer.transport.abort()
        self.connections.clear()


@contextlib.asynccontextmanager
async def echo(*, tcp: bool = False) -> AsyncIterator[Echo]:
    """On a unix socket, or on a free port of the loopback."""
    made = Echo()
    with tempfile.TemporaryDirectory(prefix="mpreg-t-", dir="/tmp") as folder:
        if tcp:
            server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
            made.port = server.sockets[0].getsockname()[1]
            made.url = f"valkey://127.0.0.1:{made.port}"
        else:
            path = str(Path(folder, "s.sock"))
            server = await asyncio.start_unix_server(made.serve, path)
            made.url = f"unix://{path}"
        try:
            yield made
        finally:
            server.close()
            made.drop()
            await server.wait_closed()
