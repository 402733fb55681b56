"""A link between nodes before its handshake is done, at either end. What comes here reaches nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable

from mpreg.cluster.handshake import Handshake, Identity
from mpreg.cluster.node_link import NodeLink
from mpreg.errors import ClusterError, MpregError, TransportError
from mpreg.transport import Link
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.error import ErrorResponse, error_response, to_exception
from mpreg.wire.lifecycle import Hello

HELLO_S = 10.0
"""From the first HELLO to the open link."""

Introduced = Callable[["Opening"], None]
"""The peer says who it is. Raises what speaks against a link with it."""
Opened = Callable[["Opening"], NodeLink]
"""Who takes the link over. Raises what speaks against it."""
Announced = Callable[[NodeLink], None]
"""Both ends are sure, and the last HELLO is on its way: from now on the link is used."""


class Opening:
    """The handler of such a link; once the handshake is done the link has the one that `opened` names.

    A dialler awaits `done`, which raises why there is no link.
    """

    def __init__(
        self,
        link: Link,
        me: Identity,
        secret: bytes,
        *,
        dials: bool,
        introduced: Introduced,
        opened: Opened,
        announced: Announced,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.link = link
        self.handshake = Handshake(me, secrets.token_hex(32), secret, dials=dials)
        self.done: asyncio.Future[None] = loop.create_future()
        self.clock_skew_s = 0.0
        """How far the peer's clock is ahead, by its HELLO."""
        self._introduced = introduced
        self._opened = opened
        self._announced = announced
        self._timer = loop.call_later(HELLO_S, self._expire)

    def introduce(self) -> None:
        """A dialler's first word."""
        self._send(self.handshake.introduction(time.time()))

    def take(self, hello: Hello, encoding: Encoding) -> None:
        if isinstance(hello.timestamp, float):
            self.clock_skew_s = hello.timestamp - time.time()
        node: NodeLink | None = None
        try:
            answer = self.handshake.take(hello, time.time())
            if not self.handshake.is_open:
                self._introduced(self)
            if self.handshake.is_open:
                node = self._opened(self)
                self.link.divert(node)
        except MpregError as error:
            self.fail(error)
            return
        if answer is not None:
            self._send(answer)
        if node is not None:
            self._finish(None)
            self._announced(node)

    def fail(self, error: MpregError) -> None:
        """Say why, and close."""
        with contextlib.suppress(MpregError):
            self.link.send(codec.encode(error_response(error, None), Encoding.MSGPACK), Encoding.MSGPACK)
        self.link.close(error)
        self._finish(error)

    # The contract of a link's handler.

    def on_message(self, link: Link, message: bytes, encoding: Encoding) -> None:
        try:
            decoded = codec.decode(message, encoding)
        except MpregError as error:
            self.fail(error)
            return
        if isinstance(decoded, Hello):
            self.take(decoded, encoding)
        elif isinstance(decoded, ErrorResponse):
            self._finish(to_exception(decoded.error))
            link.close()
        else:
            self.fail(
                ClusterError("CLUSTER_HANDSHAKE", "Between nodes nothing but HELLO comes first", expected="HELLO")
            )

    def on_refused(self, link: Link, error: MpregError) -> None:
        self.fail(error)

    def on_closed(self, link: Link, error: MpregError | None) -> None:
        text = f"{link.url} ended the link before it was open"
        self._finish(error or TransportError("TRANSPORT_CONNECTION_LOST", text, url=link.url))

    def _send(self, hello: Hello) -> None:
        self.link.send(codec.encode(hello, Encoding.MSGPACK), Encoding.MSGPACK)

    def _expire(self) -> None:
        self.fail(ClusterError("CLUSTER_HANDSHAKE", f"The handshake took more than {HELLO_S:g} s", expected="HELLO"))

    def _finish(self, error: MpregError | None) -> None:
        self._timer.cancel()
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)
            self.done.exception()  # an acceptor's end has nobody who awaits it
