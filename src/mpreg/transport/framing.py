"""What a socket link asks of its framing: WebSocket or length-prefixed TCP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from mpreg.errors import MpregError
from mpreg.wire.encoding import Encoding
from mpreg.wire.limits import Limits


class Framing(Protocol):
    waits_for_peer: bool
    """The peer answers `goodbye`, and the socket is closed after that."""

    def frame(self, message: bytes, encoding: Encoding) -> bytes:
        """A short message, whole."""

    def pieces(self, message: bytes, encoding: Encoding) -> Iterator[bytes | memoryview]:
        """A long message, piece by piece, each made when there is room to write it."""

    def restrict(self, limits: Limits) -> None: ...

    def ping(self) -> bytes: ...

    def goodbye(self, error: MpregError | None) -> bytes:
        """The last bytes of this side."""
