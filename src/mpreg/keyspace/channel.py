"""Pub/sub channels are declared beside keys: a name pattern and the codec of what is published."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from mpreg.keyspace.codec import Codec
from mpreg.keyspace.commands import Commands
from mpreg.keyspace.pattern import Pattern
from mpreg.keyspace.placeholder import Value

T = TypeVar("T")


class Channel(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    name: str
    keyspace: str
    pattern: Pattern
    codec: Codec[T]
    about: str = ""

    def channel(self, **values: Any) -> bytes:
        return self.pattern.build(values)

    def parse(self, channel: bytes) -> dict[str, Value] | None:
        return self.pattern.parse(channel)

    def glob(self, **known: Any) -> bytes:
        """For PSUBSCRIBE; it may match more, so parse the channel of every message."""
        return self.pattern.glob(**known)

    def decode(self, data: bytes) -> T:
        return self.codec.decode(data)

    async def publish(self, store: Commands, message: T, **values: Any) -> int:
        """How many subscribers of that server got it."""
        return int(await store.command(b"PUBLISH", self.channel(**values), self.codec.encode(message)))
