"""A link carries whole messages between two peers. What is above sees messages, never frames, chunks or sockets.

`send` never blocks and never fails for a slow peer: what the peer has not taken yet is counted in `waiting`, and a
link whose `waiting` passes the limit closes itself with `RESOURCE_SLOW_CONSUMER`. Messages that are sent in one turn of
the event loop share writes.
"""

from __future__ import annotations

from typing import Protocol

from mpreg.errors import MpregError
from mpreg.transport.peer import Peer
from mpreg.wire.encoding import Encoding
from mpreg.wire.limits import Limits


class LinkHandler(Protocol):
    """What a link calls, always from the event loop, never after `on_closed`."""

    def on_message(self, link: Link, message: bytes, encoding: Encoding) -> None:
        """One whole message. JSON is not yet known to be valid UTF-8."""

    def on_refused(self, link: Link, error: MpregError) -> None:
        """A message was dropped for its size, or framing is lost; in the latter case the link closes after this."""

    def on_closed(self, link: Link, error: MpregError | None) -> None:
        """The link is gone; `error` is None if either side closed it in good order."""


class Link(Protocol):
    @property
    def url(self) -> str:
        """Of the peer, for logs: `tcp://127.0.0.1:41234`."""

    @property
    def peer(self) -> Peer:
        """What the transport knows of the peer: headers of its request, its certificate."""

    @property
    def limits(self) -> Limits: ...

    @property
    def waiting(self) -> int:
        """Bytes accepted by `send` that the operating system has not taken."""

    @property
    def closed(self) -> bool: ...

    @property
    def takes_more(self) -> bool:
        """It is open, and at most half of what may wait does: a new call will not be what ends it."""

    def send(self, message: bytes, encoding: Encoding) -> None:
        """Queue one message. A message over `limits.message_bytes_max` raises `RESOURCE_MESSAGE_TOO_LARGE`;
        on a closed link it is dropped."""

    def pause_reading(self) -> None:
        """Stop taking bytes from the peer, so that it feels back-pressure."""

    def resume_reading(self) -> None: ...

    def restrict(self, limits: Limits) -> None:
        """Other limits from here on: the peer has proved to be a node (R-W4)."""

    def divert(self, handler: LinkHandler) -> None:
        """From the next message on `handler` hears of everything, and the former one of nothing."""

    def close(self, error: MpregError | None = None) -> None:
        """Write what is waiting, then close. `error` is what `on_closed` will be told."""

    async def wait_closed(self) -> None: ...
