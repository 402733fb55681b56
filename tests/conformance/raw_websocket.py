"""A WebSocket in one thread, over the protocol core of `websockets`: its blocking client reads and writes one TLS
socket from two threads, which Python 3.11 does not keep apart."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterable

from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri


class Closed(Exception):
    """The other side has closed the connection."""


class RawWebSocket:
    def __init__(self, url: str, connected: socket.socket) -> None:
        self._socket = connected
        self._protocol = ClientProtocol(parse_uri(url), max_size=None)
        self._frames: deque[Frame] = deque()
        self._protocol.send_request(self._protocol.connect())
        self._flush()
        while not self._read():
            pass
        if self._protocol.handshake_exc is not None:
            raise Closed(str(self._protocol.handshake_exc))

    def send(self, data: bytes, text: bool) -> None:
        (self._protocol.send_text if text else self._protocol.send_binary)(data)
        self._flush()

    def send_fragments(self, parts: Iterable[bytes], text: bool) -> None:
        start = self._protocol.send_text if text else self._protocol.send_binary
        for part in parts:
            start(part, fin=False)
            start = self._protocol.send_continuation
            self._flush()
        self._protocol.send_continuation(b"", fin=True)
        self._flush()

    def receive(self) -> str | bytes:
        """One whole message."""
        whole = bytearray()
        text = False
        while True:
            while not self._frames:
                self._read()
            frame = self._frames.popleft()
            if frame.opcode is Opcode.CLOSE:
                raise Closed(bytes(frame.data).decode(errors="replace"))
            if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                text = text or frame.opcode is Opcode.TEXT
                whole += frame.data
                if frame.fin:
                    return whole.decode() if text else bytes(whole)

    def _read(self) -> bool:
        """Whether the handshake is over."""
        try:
            data = self._socket.recv(1 << 20)
        except ConnectionError as problem:
            raise Closed(str(problem)) from None
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        over = False
        for event in self._protocol.events_received():
            over = True
            if isinstance(event, Frame):
                self._frames.append(event)
        self._flush()
        if not data and not self._frames:
            raise Closed("end of stream")
        return over

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._socket.sendall(data)
