"""Two nodes make sure of each other: who may link, and what a stranger can make of what is said."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpreg.cluster.handshake import Handshake, Identity, State
from mpreg.errors import ClusterError
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.lifecycle import Hello

SECRET = b"correct horse battery staple"
NOW = 1_700_000_000.0


def identity(node_id: str, cluster_id: str = "c", run: str = "") -> Identity:
    return Identity(node_id, run or f"run-{node_id}", cluster_id, (f"tcp://{node_id}:1",), (f"f-{node_id}",), ("gpu",))


class Ends:
    def __init__(
        self, a: Identity, b: Identity, *, secret_a: bytes = SECRET, secret_b: bytes = SECRET, salt: str = "0"
    ) -> None:
        self.a = Handshake(a, (salt + "a").rjust(64, "0"), secret_a, dials=True)
        self.b = Handshake(b, (salt + "b").rjust(64, "0"), secret_b, dials=False)
        self.said: list[Hello] = []

    def run(self) -> None:
        hello: Hello | None = self.a.introduction(NOW)
        taker, giver = self.b, self.a
        while hello is not None:
            self.said.append(hello)
            hello = taker.take(over_the_wire(hello), NOW)
            taker, giver = giver, taker


def over_the_wire(hello: Hello) -> Hello:
    decoded = codec.decode(codec.encode(hello, Encoding.MSGPACK), Encoding.MSGPACK)
    assert isinstance(decoded, Hello)
    return decoded


def linked(salt: str = "0") -> Ends:
    ends = Ends(identity("a"), identity("b"), salt=salt)
    ends.run()
    return ends


def test_a_hello_is_answered_by_a_hello_until_both_are_sure() -> None:
    ends = linked()
    assert ends.a.is_open
    assert ends.b.is_open
    assert len(ends.said) == 4
    assert ends.a.peer == identity("b")
    assert ends.b.peer == identity("a")


def test_what_a_node_has_is_said_only_after_the_dialler_has_proved_itself() -> None:
    introduction_a, introduction_b, *proofs = linked().said
    for hello in (introduction_a, introduction_b):
        assert (hello.funs, hello.locs, hello.advertised_urls, hello.proof) == ((), (), (), msgspec.UNSET)
    assert [hello.funs for hello in proofs] == [("f-a",), ("f-b",)]


def refused(ends: Ends) -> ClusterError:
    with pytest.raises(ClusterError) as raised:
        ends.run()
    assert not ends.a.is_open
    assert not ends.b.is_open
    assert raised.value.state_changed is False
    return raised.value


def test_a_wrong_secret_is_refused_by_who_was_dialled() -> None:
    ends = Ends(identity("a"), identity("b"), secret_a=b"x" * 16)
    assert refused(ends).code == "CLUSTER_WRONG_SECRET"
    assert ends.b.state is State.FAILED
    assert len(ends.said) == 3  # who was dialled has proved nothing to a stranger


def test_a_node_of_another_cluster_is_refused() -> None:
    error = refused(Ends(identity("a"), identity("b", "other")))
    assert error.code == "CLUSTER_OTHER_CLUSTER"
    assert error.details == {"cluster_id": "other"}


def test_two_nodes_with_one_name_do_not_link() -> None:
    assert refused(Ends(identity("a", run="1"), identity("a", run="2"))).code == "CLUSTER_NAME_TAKEN"


def test_a_node_that_dials_itself_is_told_so() -> None:
    assert refused(Ends(identity("a"), identity("a"))).code == "CLUSTER_SELF"


def test_a_client_that_says_the_hello_of_the_note_does_not_become_a_node() -> None:
    acceptor = Handshake(identity("b"), "0" * 64, SECRET, dials=False)
    with pytest.raises(ClusterError) as raised:
        acceptor.take(Hello(("f",), ("l",), "c", ("ws://node1:6666",)), NOW)
    assert raised.value.code == "CLUSTER_HANDSHAKE"


def test_a_proof_recorded_on_one_link_opens_no_other() -> None:
    recorded, fresh = linked("1").said, Ends(identity("a"), identity("b"), salt="2")
    fresh.b.take(recorded[0], NOW)
    with pytest.raises(ClusterError, match="secret"):
        fresh.b.take(recorded[2], NOW)


def test_a_proof_sent_back_to_who_made_it_proves_nothing() -> None:
    """A reflection: the attacker answers with what the dialler itself has just said."""
    ends = Ends(identity("a"), identity("b"))
    introduction = ends.a.introduction(NOW)
    proof = ends.a.take(msgspec.structs.replace(introduction, node_id="b", run="run-b"), NOW)
    assert proof is not None
    with pytest.raises(ClusterError, match="secret"):
        ends.a.take(msgspec.structs.replace(proof, node_id="b", run="run-b"), NOW)


@pytest.mark.parametrize("change", [{"funs": ("evil",)}, {"locs": ()}, {"advertised_urls": ("tcp://evil:1",)}])
def test_what_a_node_says_of_itself_can_not_be_changed_on_the_way(change: dict[str, tuple[str, ...]]) -> None:
    ends = Ends(identity("a"), identity("b"))
    answer = ends.b.take(ends.a.introduction(NOW), NOW)
    assert answer is not None
    proof = ends.a.take(answer, NOW)
    assert proof is not None
    with pytest.raises(ClusterError, match="secret"):
        ends.b.take(msgspec.structs.replace(proof, **change), NOW)


def test_after_a_failure_nothing_opens_the_link() -> None:
    ends = Ends(identity("a"), identity("b"))
    good = linked().said
    with pytest.raises(ClusterError):
        ends.b.take(Hello((), (), "c"), NOW)
    for hello in (good[0], good[2]):
        with pytest.raises(ClusterError) as raised:
            ends.b.take(hello, NOW)
        assert raised.value.code == "CLUSTER_HANDSHAKE"


def test_every_order_but_the_right_one_fails() -> None:
    said = linked().said
    for first, second in pairwise([said[2], said[0], said[0], said[3]]):
        acceptor = Handshake(identity("b"), "0b".rjust(64, "0"), SECRET, dials=False)
        with pytest.raises(ClusterError):
            take_both(acceptor, first, second)
        assert not acceptor.is_open


def take_both(acceptor: Handshake, first: Hello, second: Hello) -> None:
    acceptor.take(first, NOW)
    acceptor.take(second, NOW)


@given(st.binary(min_size=16, max_size=64), st.binary(min_size=16, max_size=64))
def test_the_link_opens_exactly_if_the_secrets_are_the_same(one: bytes, other: bytes) -> None:
    ends = Ends(identity("a"), identity("b"), secret_a=one, secret_b=other)
    if one.ljust(64, b"\0") == other.ljust(64, b"\0"):  # HMAC pads its key with zeros
        return
    with pytest.raises(ClusterError, match="secret"):
        ends.run()
