"""How two nodes make sure of each other before anything else is said (R-G4). Pure: nonces are handed in.

    dialler -> acceptor   HELLO  who I am, nonce
    acceptor -> dialler   HELLO  who I am, nonce
    dialler -> acceptor   HELLO  proof, functions, addresses
    acceptor -> dialler   HELLO  proof, functions, addresses: the link is open

A proof is an HMAC-SHA256, keyed by the cluster's secret, of the direction, both introductions (hence both nonces,
names, runs and the cluster) and what its own HELLO says; so it is of no use on another link, in another direction, or
later.
The dialler proves itself first: a stranger who dials gets nothing to try secrets on.
"""

from __future__ import annotations

import hmac
from enum import Enum
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import UNSET

from mpreg.errors import ClusterError, MpregError
from mpreg.wire.lifecycle import Hello, Offer
from mpreg.wire.message import VERSION

SECRET_BYTES_MIN: Final = 16
LABEL: Final = "mpreg link 2"

_pack: Final = msgspec.msgpack.Encoder().encode


class Identity(msgspec.Struct, frozen=True):
    """Of one end of a link."""

    node_id: str
    run: str
    cluster_id: str
    urls: tuple[str, ...] = ()
    funs: tuple[str, ...] = ()
    locs: tuple[str, ...] = ()
    offers: tuple[Offer, ...] = ()
    started: float = 0.0
    incarnation: int = 0
    meta: dict[str, str] = {}
    check: bool = False


class State(Enum):
    INTRODUCTION = "the introduction: node_id, run, nonce"
    PROOF = "the proof"
    OPEN = "nothing: the link is open"
    FAILED = "nothing: the handshake has failed"


NEXT: Final = {State.INTRODUCTION: State.PROOF, State.PROOF: State.OPEN}
"""What is expected after what has come. Anything else fails the handshake, for good."""


class Handshake:
    """Of one link, at one end of it. `take` each HELLO that comes, send what it returns, until it `is_open`.

    What `take` raises is to be sent to the peer, and the link to be closed. An empty `secret` proves nothing: who may
    link without one is for the caller to decide before.
    """

    def __init__(self, me: Identity, nonce: str, secret: bytes, *, dials: bool) -> None:
        self.state = State.INTRODUCTION
        self.dials = dials
        self._me = me
        self._nonce = nonce
        self._secret = secret
        self._mine: list[Any] = [me.node_id, me.run, me.cluster_id, nonce]
        self._theirs: list[Any] = []
        self._peer: Identity | None = None

    @property
    def is_open(self) -> bool:
        return self.state is State.OPEN

    @property
    def is_introduced(self) -> bool:
        """The peer has said who it is."""
        return self._peer is not None

    @property
    def peer(self) -> Identity:
        """As far as it has introduced itself; proved only once `is_open`."""
        assert self._peer is not None, "known once the peer has introduced itself"
        return self._peer

    def introduction(self, timestamp: float) -> Hello:
        """A dialler's first word, an acceptor's answer to it."""
        me = self._me
        return Hello(
            (),
            (),
            me.cluster_id,
            check=me.check,
            node_id=me.node_id,
            run=me.run,
            nonce=self._nonce,
            timestamp=timestamp,
            version=VERSION,
        )

    def take(self, hello: Hello, timestamp: float) -> Hello | None:
        """What is to be answered."""
        try:
            return self._take(hello, timestamp)
        except MpregError:
            self.state = State.FAILED
            raise

    def _take(self, hello: Hello, timestamp: float) -> Hello | None:
        state = self.state
        if state is State.INTRODUCTION:
            self._introduced(hello)
            answer: Hello | None = self._proved() if self.dials else self.introduction(timestamp)
        elif state is State.PROOF:
            self._check_proof(hello)
            answer = None if self.dials else self._proved()
        else:
            raise _unexpected(state)
        self.state = NEXT[state]
        return answer

    def _introduced(self, hello: Hello) -> None:
        if hello.node_id is UNSET or hello.run is UNSET or hello.nonce is UNSET or hello.proof is not UNSET:
            raise _unexpected(State.INTRODUCTION)
        me = self._me
        if hello.cluster_id != me.cluster_id:
            raise ClusterError(
                "CLUSTER_OTHER_CLUSTER",
                f"This is a node of the cluster {me.cluster_id!r}, not of {hello.cluster_id[:128]!r}",
                cluster_id=me.cluster_id,
            )
        if hello.node_id == me.node_id:
            if hello.run == me.run:
                raise ClusterError("CLUSTER_SELF", f"{me.node_id!r} has dialled itself", node_id=me.node_id)
            raise name_taken(me.node_id)
        self._peer = Identity(hello.node_id, hello.run, hello.cluster_id, check=hello.check)
        self._theirs = [hello.node_id, hello.run, hello.cluster_id, hello.nonce]

    def _check_proof(self, hello: Hello) -> None:
        if hello.proof is UNSET:
            raise _unexpected(State.PROOF)
        peer = self.peer
        expected = self._proof(not self.dials, hello)
        if not hmac.compare_digest(expected, hello.proof):
            raise ClusterError(
                "CLUSTER_WRONG_SECRET",
                f"{self._me.node_id!r} and {peer.node_id!r} do not have the same cluster secret",
                node_id=self._me.node_id,
            )
        self._peer = Identity(
            peer.node_id,
            peer.run,
            peer.cluster_id,
            hello.advertised_urls,
            hello.funs,
            hello.locs,
            hello.offers,
            hello.started or 0.0,
            hello.incarnation or 0,
            hello.meta or {},
            peer.check,
        )

    def _proved(self) -> Hello:
        me = self._me
        plain = Hello(
            me.funs,
            me.locs,
            me.cluster_id,
            me.urls,
            node_id=me.node_id,
            run=me.run,
            offers=me.offers,
            started=me.started,
            incarnation=me.incarnation,
            meta=me.meta,
            version=VERSION,
        )
        return msgspec.structs.replace(plain, proof=self._proof(self.dials, plain))

    def _proof(self, of_dialler: bool, said: Hello) -> str:
        both = (self._mine, self._theirs) if self.dials else (self._theirs, self._mine)
        direction = "dialler" if of_dialler else "acceptor"
        facts = (said.advertised_urls, said.funs, said.locs, said.offers, said.started, said.incarnation, said.meta)
        text = _pack([LABEL, direction, *both, *(None if fact is UNSET else fact for fact in facts)])
        return hmac.new(self._secret, text, sha256).hexdigest()


def name_taken(node_id: str) -> ClusterError:
    return ClusterError(
        "CLUSTER_NAME_TAKEN",
        f"A node named {node_id[:128]!r} is in the cluster already; give each node a name of its own",
        node_id=node_id[:128],
    )


def _unexpected(expected: State) -> ClusterError:
    return ClusterError(
        "CLUSTER_HANDSHAKE",
        f"A HELLO opens a link between nodes; expected was {expected.value}",
        expected=expected.value,
    )
