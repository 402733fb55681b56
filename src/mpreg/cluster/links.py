"""The links of one node to the others of its cluster: at most one a pair, opened from either side.

Invariant: of two links between the same runs of two nodes, both ends keep the same one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from mpreg.cluster.handshake import Identity, name_taken
from mpreg.cluster.node_link import NodeHandler, NodeLink
from mpreg.cluster.opening import HELLO_S, Opening
from mpreg.errors import ClusterError, MpregError, TimedOut
from mpreg.transport import Link, LinkHandler, TlsFiles, dial
from mpreg.transport.session import Session
from mpreg.transport.url import parse
from mpreg.wire.encoding import Encoding
from mpreg.wire.lifecycle import Goodbye, Hello
from mpreg.wire.limits import INTERNAL, Limits
from mpreg.wire.message import Message

log = logging.getLogger(__name__)

CLOSE_S: Final = 2.0
OPENING_MAX: Final = 1_000
"""Links whose handshake is not done; the next is refused."""

Divert = Callable[[Session, LinkHandler], None]
"""From now on the handler hears of this session's link, and nobody else does."""


class Links:
    """`linked` and `unlinked` are told of nodes, each once and in turn for a node; `left` of those that say GOODBYE.
    `refuses` knows whether somebody else has the name of a node."""

    def __init__(
        self,
        me: Callable[[], Identity],
        secret: bytes | None,
        divert: Divert,
        *,
        linked: Callable[[NodeLink], None],
        unlinked: Callable[[NodeLink, MpregError | None], None],
        left: Callable[[NodeLink], None],
        refuses: Callable[[Identity], bool],
        tls: TlsFiles | None = None,
        limits: Limits = INTERNAL,
    ) -> None:
        self.nodes: dict[str, NodeLink] = {}
        self.handlers: dict[type[Message], NodeHandler] = {Goodbye: self._goodbye}
        self.counts: Counter[str] = Counter()
        self.refusals: dict[str, MpregError] = {}
        """Why the last attempt to link to an address failed, for those that are not linked."""
        self.skews_s: dict[str, float] = {}
        """How far the clocks of the linked nodes are ahead."""
        self._me = me
        self._secret = secret
        self._divert = divert
        self._linked = linked
        self._unlinked = unlinked
        self._left = left
        self._refuses = refuses
        self._tls = tls
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._openings: set[Opening] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._dialling: set[str] = set()
        self._closing = False

    @property
    def handlers_of_clients(self) -> Mapping[type[Message], Callable[[Session, Hello, Encoding], None]]:
        """For the node's dispatch."""
        return {Hello: self.hello}

    def accept(self, link: Link) -> LinkHandler:
        """Of a listener that only nodes know of."""
        opening = self._opening(link, dials=False)
        self._admit(opening)
        return opening

    def hello(self, session: Session, message: Hello, encoding: Encoding) -> None:
        """Someone who connected as a client says to be a node. From here on it is one, or nothing."""
        opening = self._opening(session.link, dials=False)
        self._divert(session, opening)
        if self._admit(opening):
            opening.take(message, encoding)

    # Dialling.

    def ensure(self, node_id: str, urls: tuple[str, ...]) -> None:
        """There should be a link to this node: try its addresses once, unless someone does already."""
        if node_id in self.nodes or node_id in self._dialling or self._closing:
            return
        self._dialling.add(node_id)
        task = self._loop.create_task(self._try_each(node_id, urls), name=f"mpreg-link-{node_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def dial(self, url: str) -> str:
        """Open a link to whoever is at this address; its node id. Raises why there is none."""
        try:
            node_id = await self._dial(url)
        except MpregError as error:
            if error.code not in _HARMLESS:
                self.refusals[url] = error
            raise
        self.refusals.pop(url, None)
        return node_id

    async def _try_each(self, node_id: str, urls: tuple[str, ...]) -> None:
        try:
            for url in urls:
                try:
                    found = await self.dial(url)
                except MpregError as error:
                    log.debug("No link to %s at %s: %s", node_id, url, error)
                    if error.code == "CLUSTER_ALREADY_LINKED":
                        return
                    continue
                if found == node_id:
                    return
        finally:
            self._dialling.discard(node_id)

    async def _dial(self, url: str) -> str:
        self._check_secret(parse(url).host, self._tls is not None and self._tls.cert is not None and parse(url).secure)
        openings: list[Opening] = []

        def accept(link: Link) -> Opening:
            openings.append(self._opening(link, dials=True))
            return openings[0]

        tls = self._tls if parse(url).secure else None
        await dial(url, accept, limits=self._limits, tls=tls, timeout_s=HELLO_S)
        opening = openings[0]
        opening.introduce()
        try:
            async with asyncio.timeout(HELLO_S):
                await asyncio.shield(opening.done)
        except TimeoutError:
            opening.link.close()
            raise TimedOut("TIMEOUT_CONNECT", f"{url} took no part in the handshake", url=url) from None
        except asyncio.CancelledError:
            opening.link.close()
            raise
        return opening.handshake.peer.node_id

    # Opening.

    def _opening(self, link: Link, *, dials: bool) -> Opening:
        opening = Opening(
            link,
            self._me(),
            self._secret or b"",
            dials=dials,
            introduced=self._introduced,
            opened=self._opened,
            announced=self._announced,
        )
        self._openings.add(opening)
        opening.done.add_done_callback(lambda _: self._openings.discard(opening))
        return opening

    def _admit(self, opening: Opening) -> bool:
        link = opening.link
        try:
            if len(self._openings) > OPENING_MAX:
                raise ClusterError("CLUSTER_HANDSHAKE", f"{OPENING_MAX} handshakes are under way", expected="later")
            if link.url != "memory:":
                self._check_secret(parse(link.url).host, link.peer.certificate is not None)
        except MpregError as error:
            self._count(error)
            opening.fail(error)
            return False
        opening.done.add_done_callback(self._count_refusal)
        link.restrict(self._limits)
        return True

    def _check_secret(self, host: str, certified: bool) -> None:
        if self._secret is None and not certified and not _is_loopback(host):
            raise ClusterError(
                "CLUSTER_SECRET_REQUIRED",
                f"{host} is not this machine: a link to it needs a cluster secret, or certificates on both sides",
                host=host,
            )

    def _introduced(self, opening: Opening) -> None:
        """Whoever dials should have no link yet; of two who dial each other at once, the lower name goes on."""
        peer, dials = opening.handshake.peer, opening.handshake.dials
        old = self.nodes.get(peer.node_id)
        if dials and old is not None and old.peer.run == peer.run:
            raise _already_linked(peer.node_id)
        if not dials and self._me().node_id < peer.node_id and self._is_proving_to(peer):
            raise _already_linked(peer.node_id)

    def _is_proving_to(self, peer: Identity) -> bool:
        handshakes = [opening.handshake for opening in self._openings]
        return any(each.dials and each.is_introduced and each.peer.run == peer.run for each in handshakes)

    def _opened(self, opening: Opening) -> NodeLink:
        peer, dials = opening.handshake.peer, opening.handshake.dials
        if self._closing:
            raise ClusterError("CLUSTER_NODE_NOT_FOUND", "This node is leaving", retryable=True)
        if self._refuses(peer):
            raise name_taken(peer.node_id)
        if peer.check:
            raise ClusterError("CLUSTER_CHECKED", f"{peer.node_id!r} would be let in")
        old = self.nodes.get(peer.node_id)
        if old is not None:
            self._compare(old, peer, dials)
        node = NodeLink(opening.link, peer, self, dialled=dials, since=self._loop.time())
        if old is not None:
            self._drop(old, None)
            old.link.close()
        self.nodes[peer.node_id] = node
        self.skews_s[peer.node_id] = opening.clock_skew_s
        self.counts["links_opened"] += 1
        return node

    def _announced(self, node: NodeLink) -> None:
        if self.nodes.get(node.node_id) is node:
            self._linked(node)

    def _compare(self, old: NodeLink, peer: Identity, dials: bool) -> None:
        """Raises unless the new link takes the place of the old one."""
        if old.peer.run != peer.run:
            return  # who holds the name was asked before: the other run is gone, though its link is not
        young = self._loop.time() - old.since < HELLO_S
        mine_is_lower = self._me().node_id < peer.node_id
        if young and old.dialled is not dials and old.dialled is mine_is_lower:
            raise _already_linked(peer.node_id)

    # The end.

    def ended(self, node: NodeLink, error: MpregError | None) -> None:
        self._drop(node, error)

    def close_link(self, node_id: str, error: MpregError) -> None:
        """The node is dead, whatever its link says."""
        node = self.nodes.get(node_id)
        if node is not None:
            self._drop(node, error)
            node.link.close(error)

    def _drop(self, node: NodeLink, error: MpregError | None) -> None:
        if self.nodes.get(node.node_id) is node:
            del self.nodes[node.node_id]
            self.skews_s.pop(node.node_id, None)
            self.counts["links_lost"] += 1
            self._unlinked(node, error)

    def say_goodbye(self) -> None:
        """Nothing new is to be sent here; what is under way goes on."""
        me = self._me().node_id
        for node in self.nodes.values():
            node.send(Goodbye(node_id=me), Encoding.MSGPACK)

    async def close(self) -> None:
        self._closing = True
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        links = [node.link for node in self.nodes.values()] + [opening.link for opening in self._openings]
        for link in links:
            link.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await asyncio.gather(*(link.wait_closed() for link in links))

    def _goodbye(self, node: NodeLink, message: Goodbye, encoding: Encoding) -> None:
        """R-G4: only from the node that leaves."""
        if message.node_id not in (node.node_id, None) and isinstance(message.node_id, str):
            self.counts["forged_goodbyes"] += 1
            log.warning("%s said GOODBYE for %s", node.node_id, message.node_id[:128])
            return
        node.leaving = True
        self._left(node)

    def _count_refusal(self, done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if isinstance(error, MpregError):
            self._count(error)

    def _count(self, error: MpregError) -> None:
        if error.code in _HARMLESS:
            return
        self.counts["refused_links"] += 1
        self.counts[f"refused_{error.code.lower()}"] += 1
        log.warning("A link was refused: %s", error)


_HARMLESS: Final = frozenset({"CLUSTER_ALREADY_LINKED", "CLUSTER_SELF", "CLUSTER_CHECKED"})
"""What happens when nodes look for each other."""


def _already_linked(node_id: str) -> ClusterError:
    return ClusterError("CLUSTER_ALREADY_LINKED", f"There is a link to {node_id!r} already", node_id=node_id)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
