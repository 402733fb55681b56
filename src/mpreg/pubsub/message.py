"""One published message on its way through a node, in the encodings that its subscribers read."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import UNSET

from mpreg.errors import MpregError
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.pubsub import PubSubMessage

ENVELOPE_BYTES: Final = 120
"""About what the envelope of a message takes on the wire besides its topic; to size a frame, not to refuse one."""


class Published(msgspec.Struct, gc=False):
    seq: int
    """Its place among all messages of its origin."""
    at: float
    """When it came, by this node's clock."""
    encoding: Encoding
    """Of the payload, as the publisher sent it."""
    message: PubSubMessage
    size: int
    """Bytes of topic, payload and about the rest."""
    transcoded: PubSubMessage | None = None
    origin: str = ""
    """Where it was published, by the name of that run of that node; empty for this one."""
    place: int = 0
    """Its place among all that this node has delivered; `seq` counts at its origin."""

    def in_encoding(self, encoding: Encoding) -> PubSubMessage | None:
        """Transcoded at most once, however many subscribers want it. None if payload or headers have no such encoding:
        a MessagePack map may have keys that JSON can't have, a JSON number may be too large for MessagePack."""
        if encoding is self.encoding:
            return self.message
        if self.transcoded is None:
            try:
                payload = codec.transcode(self.message.payload, self.encoding, encoding)
                if self.message.headers is not UNSET:
                    codec.encode_value(self.message.headers, encoding)
            except MpregError:
                return None
            self.transcoded = msgspec.structs.replace(self.message, payload=payload)
        return self.transcoded
