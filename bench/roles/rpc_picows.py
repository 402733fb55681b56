"""A reference: the note's JSON messages with msgspec on bare picows. One function, no errors, no timeouts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec
import picows
from msgspec import Raw

from bench.load import obey
from bench.role import Orders
from bench.rpc import TEXT

BINARY = picows.WSMsgType.BINARY
NO_KEYWORDS = Raw(b"{}")
encode = msgspec.json.Encoder().encode
decode_arguments = msgspec.json.Decoder(list[str]).decode


class Command(msgspec.Struct, gc=False):
    name: str
    fun: str
    args: Raw
    kwargs: Raw
    locs: list[str]


class Request(msgspec.Struct, gc=False):
    role: str
    u: str
    cmds: list[Command]


class Response(msgspec.Struct, gc=False):
    u: str
    r: str


decode_request = msgspec.json.Decoder(Request).decode
decode_response = msgspec.json.Decoder(Response).decode


async def same(text: str) -> str:
    return text


def run_at_once(coroutine: Any, done: Callable[[str], None]) -> None:
    """A coroutine that never waits needs no task."""
    try:
        coroutine.send(None)
    except StopIteration as stopped:
        done(stopped.value)


class Server(picows.WSListener):
    def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
        if frame.msg_type == BINARY:
            request = decode_request(frame.get_payload_as_memoryview())
            arguments = decode_arguments(request.cmds[0].args)
            run_at_once(same(*arguments), lambda r: transport.send(BINARY, encode(Response(request.u, r))))


class Client(picows.WSListener):
    def __init__(self) -> None:
        self.pending: dict[str, asyncio.Future[str]] = {}

    def on_ws_frame(self, transport: picows.WSTransport, frame: picows.WSFrame) -> None:
        if frame.msg_type == BINARY:
            response = decode_response(frame.get_payload_as_memoryview())
            self.pending.pop(response.u).set_result(response.r)


async def serve(orders: Orders) -> None:
    server = await picows.ws_create_server(lambda _request: Server(), "127.0.0.1", 0)
    orders.answer(port=server.sockets[0].getsockname()[1])
    await orders.ended()


async def ask(orders: Orders, port: int) -> None:
    loop = asyncio.get_running_loop()
    transport, client = await picows.ws_connect(Client, f"ws://127.0.0.1:{port}/")
    assert isinstance(client, Client)
    numbers = count()

    async def call() -> None:
        u = str(next(numbers))
        answer = client.pending[u] = loop.create_future()
        command = Command("call", "same", Raw(encode((TEXT,))), NO_KEYWORDS, [])
        transport.send(BINARY, encode(Request("rpc", u, [command])))
        assert await answer == TEXT

    orders.answer(ready=True)
    await obey(orders, call)
    transport.disconnect()
