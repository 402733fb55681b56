"""A peer that knows the note and nothing of ours: sockets, a WebSocket library, JSON and MessagePack."""

from __future__ import annotations

import json
import socket
import ssl
import struct
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import count
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec
from tests.conformance.raw_websocket import Closed, RawWebSocket

TIMEOUT_S = 20.0


class Endpoint(NamedTuple):
    scheme: str
    encoding: str

    def __str__(self) -> str:
        return f"{self.scheme}-{self.encoding}"


ENDPOINTS = [Endpoint(scheme, encoding) for scheme in ("ws", "wss", "tcp", "tcps") for encoding in ("json", "msgpack")]


class Raw:
    """One connection that speaks one encoding."""

    def __init__(self, url: str, encoding: str, ca: str) -> None:
        self.encoding = encoding
        self.is_tcp = url.startswith("tcp")
        tls = ssl.create_default_context(cafile=ca) if url.startswith(("wss", "tcps")) else None
        self._numbers = count(1)
        self._stack = ExitStack()
        self._socket = self._stack.enter_context(self._open(url, tls))
        if not self.is_tcp:
            self._websocket = RawWebSocket(url, self._socket)

    @staticmethod
    def _open(url: str, tls: ssl.SSLContext | None) -> socket.socket:
        parts = urlsplit(url)
        assert parts.hostname
        plain = socket.create_connection((parts.hostname, parts.port or 0), TIMEOUT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return tls.wrap_socket(plain, server_hostname=parts.hostname) if tls else plain

    # Whole messages.

    def send(self, message: Any) -> None:
        self.send_encoded(self.encode(message))

    def receive(self) -> Any:
        """The next message, which must be in our encoding."""
        frame = self.receive_frame()
        if self.encoding == "json":
            assert isinstance(frame, str) or frame[:1] == b"{"
            return json.loads(frame)
        assert isinstance(frame, bytes)
        return msgspec.msgpack.decode(frame)

    def ask(self, message: Any) -> Any:
        self.send(message)
        return self.receive()

    def call(self, fun: str, *args: Any, **fields: Any) -> Any:
        """The whole response to one command."""
        self.send_call(fun, *args, **fields)
        return self.receive()

    def send_call(self, fun: str, *args: Any, **fields: Any) -> str:
        u = str(fields.pop("u", f"req-{next(self._numbers)}"))
        command = {"name": "call", "fun": fun, "args": args, "kwargs": {}, "locs": []}
        command |= {key: fields.pop(key) for key in ("kwargs", "locs") if key in fields}
        self.send({"role": "rpc", "u": u, "cmds": [command], **fields})
        return u

    def request(self, *commands: dict[str, Any], **fields: Any) -> Any:
        return self.ask({"role": "rpc", "u": f"req-{next(self._numbers)}", "cmds": commands, **fields})

    def encode(self, message: Any) -> bytes:
        return json.dumps(message).encode() if self.encoding == "json" else msgspec.msgpack.encode(message)

    # Frames and bytes.

    def send_encoded(self, data: bytes) -> None:
        """As a frame of this connection's encoding."""
        if self.is_tcp:
            self._socket.sendall(struct.pack(">I", len(data)) + data)
        else:
            self._websocket.send(data, text=self.encoding == "json")

    def send_binary(self, data: bytes) -> None:
        """As a frame that does not say its encoding."""
        if self.is_tcp:
            self.send_encoded(data)
        else:
            self._websocket.send(data, text=False)

    def send_bytes(self, data: bytes) -> None:
        """Past all framing."""
        self._socket.sendall(data)

    def send_in_parts(self, parts: Iterable[bytes]) -> None:
        """One message, streamed: WebSocket fragments, or TCP chunks."""
        if not self.is_tcp:
            self._websocket.send_fragments(parts, text=self.encoding == "json")
            return
        whole = list(parts)
        for at, part in enumerate(whole):
            self.send_encoded(bytes((0xC1, at < len(whole) - 1)) + part)

    def receive_frame(self) -> str | bytes:
        if not self.is_tcp:
            return self._websocket.receive()
        whole = bytearray()
        while True:
            (length,) = struct.unpack(">I", self._exactly(4))
            frame = self._exactly(length)
            if frame[:1] == b"\xc1":
                whole += frame[2:]
                if frame[1] == 0:
                    return bytes(whole)
            elif frame:
                return frame

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self._socket.recv(min(size - len(data), 1 << 20))
            except ConnectionError as problem:
                raise Closed(str(problem)) from None
            if not part:
                raise Closed("end of stream")
            data += part
        return bytes(data)

    def assert_closed(self) -> None:
        """Whatever still comes, the connection ends."""
        try:
            while True:
                self.receive_frame()
        except Closed:
            pass

    def close(self) -> None:
        self._stack.close()

    def abort(self) -> None:
        """Without any farewell."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
