"""One connection as a service sees it: messages in and out, never bytes. Services keep what they know by session."""

from __future__ import annotations

import itertools

from mpreg.errors import MpregError
from mpreg.transport.link import Link
from mpreg.wire import codec
from mpreg.wire.encoding import JSON, Encoding
from mpreg.wire.message import Message

_numbers = itertools.count(1)


class Session:
    """From the first message of a link to its end."""

    __slots__ = ("id", "link")

    def __init__(self, link: Link) -> None:
        self.id = next(_numbers)
        self.link = link

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.link.url}>"

    @property
    def closed(self) -> bool:
        return self.link.closed

    def send(self, message: Message, encoding: Encoding) -> None:
        """Encode and send. What is too large to be sent raises `RESOURCE_MESSAGE_TOO_LARGE`."""
        encode = codec.encode_json if encoding is JSON else codec.encode_msgpack
        self.link.send(encode(message), encoding)

    def close(self, error: MpregError | None = None) -> None:
        self.link.close(error)
