"""pyzmq, blocking, which is its fastest way: PUB and SUB sockets, one thread reads all of them. The hub only picks
the port at which the publisher listens; there is nothing between the two.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import zmq

from bench.roles.pubsub import Sink
from bench.servers import free_port

JOIN_S = 1.5


@asynccontextmanager
async def hub(**_: Any) -> AsyncIterator[dict[str, Any]]:
    yield {"url": f"tcp://127.0.0.1:{free_port()}"}


async def subscribe(sink: Sink, count: int, url: str, **_: Any) -> object:
    context = zmq.Context.instance()
    sockets = []
    for _number in range(count):
        socket = context.socket(zmq.SUB)
        socket.set_hwm(0)
        socket.connect(url)
        socket.subscribe(b"bench.topic")
        sockets.append(socket)

    def read() -> None:
        poller = zmq.Poller()
        for socket in sockets:
            poller.register(socket, zmq.POLLIN)
        while True:
            for socket, _event in poller.poll():
                try:
                    while True:
                        sink.got(socket.recv_multipart(zmq.NOBLOCK)[1])
                except zmq.Again:
                    pass

    threading.Thread(target=read, daemon=True).start()
    return sockets


class _Publisher:
    def __init__(self, socket: Any) -> None:
        self._socket = socket

    def send(self, payload: bytes) -> None:
        self._socket.send_multipart((b"bench.topic", payload))

    async def settle(self) -> None:
        return


@asynccontextmanager
async def publisher(url: str, **_: Any) -> AsyncIterator[_Publisher]:
    socket = zmq.Context.instance().socket(zmq.PUB)
    socket.set_hwm(0)
    socket.bind(url)
    await asyncio.sleep(JOIN_S)
    yield _Publisher(socket)
