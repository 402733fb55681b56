"""R-G3: a message that lies about its sender, checksum, ttl or hops is dropped and counted, and so is one that is out
of date or came before. Nothing of it has any effect."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from tests.cluster.machines import EPOCH, One, Peer, node, only, said
from tests.wire.messages import plain

from mpreg.cluster.effects import Effect, NodeChanged, Send, StateChanged, WakeAt
from mpreg.cluster.events import Received
from mpreg.cluster.intake import REASONS, Reason
from mpreg.cluster.settings import LAN
from mpreg.wire.gossip import (
    PAYLOADS,
    AntiEntropy,
    Gossip,
    MembershipUpdate,
    Rumor,
    StateUpdate,
    Updates,
    checksum_of,
    digest_of,
)


def linked() -> tuple[One, Peer, Peer]:
    one, b, c = One(), Peer("b"), Peer("c")
    one.link(b, c)
    return one, b, c


def joined(name: str = "new") -> MembershipUpdate:
    return said("join", node(name), "b")


def tampered(event: Received, **changes: Any) -> Received:
    return Received(event.from_node, msgspec.structs.replace(event.message, **changes))


def signed(event: Received, **changes: Any) -> Received:
    """Changed by someone who knows how to make the sums right."""
    message = msgspec.structs.replace(event.message, **changes)
    digest = digest_of(message.payload)
    covered = (message.message_id, message.message_type, message.sender_id, message.sequence_number, digest)
    return Received(event.from_node, msgspec.structs.replace(message, digest=digest, checksum=checksum_of(*covered)))


def visible(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, NodeChanged | StateChanged)]


def dropped_as(reason: Reason, one: One, event: Received) -> None:
    before = dict(one.machine.dropped)
    assert visible(one.step(event)) == []
    after = dict(one.machine.dropped)
    assert {name: after[name] - before[name] for name in REASONS if after[name] != before[name]} == {reason: 1}


def test_a_message_in_order_is_taken() -> None:
    one, b, _ = linked()
    assert visible(one.step(b.says("membership_update", joined())))
    assert not any(one.machine.dropped.values())


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("ttl", {"ttl": 10**9}),
        ("ttl", {"ttl": -1}),
        ("hops", {"hop_count": -1}),
        ("hops", {"hop_count": -5, "max_hops": -1}),
        ("hops", {"max_hops": 10**6}),
        ("hops", {"hop_count": 4, "max_hops": 3}),
        ("hops", {"propagation_path": ()}),
        ("hops", {"propagation_path": ("b", "b", "b")}),
        ("sender", {"propagation_path": ("c",)}),
        ("sender", {"sender_id": "c"}),
        ("sender", {"sender_id": "c", "propagation_path": ("c",)}),
        ("sender", {"seen_by": tuple(str(n) for n in range(100_000))}),
        ("clock", {"vector_clock": {str(n): 1 for n in range(100_000)}}),
        ("clock", {"vector_clock": {"b": -1}}),
        ("clock", {"vector_clock": {"b": 2**60}}),
        ("clock", {"sequence_number": -1}),
        ("lifetime", {"expires_at": float("inf")}),
        ("lifetime", {"created_at": float("nan")}),
        ("lifetime", {"created_at": EPOCH, "expires_at": EPOCH - 1}),
        ("lifetime", {"created_at": EPOCH, "expires_at": EPOCH + 10**9}),
        ("lifetime", {"created_at": EPOCH + 3600, "expires_at": EPOCH + 3700}),
        ("expired", {"created_at": EPOCH - 3700, "expires_at": EPOCH - 3600}),
        ("digest", {"payload": Raw(b"\x80")}),
        ("digest", {"digest": "sha256:00"}),
        ("checksum", {"checksum": "crc32:00000000"}),
        ("checksum", {"message_id": "another"}),
        ("checksum", {"message_type": "rumor"}),
        ("checksum", {"sequence_number": 77}),
        ("too_large", {"message_id": "x" * 1000}),
        ("too_large", {"message_id": ""}),
    ],
)
def test_what_lies_about_itself_is_dropped_and_counted(reason: Reason, changes: dict[str, Any]) -> None:
    one, b, _ = linked()
    dropped_as(reason, one, tampered(b.says("membership_update", joined()), **changes))


def test_the_sender_is_who_the_link_has_proved() -> None:
    one, _, c = linked()
    dropped_as("sender", one, Received("b", c.says("membership_update", joined()).message))


def test_only_who_has_a_link_is_heard() -> None:
    one, _, _ = linked()
    dropped_as("not_linked", one, Peer("stranger").says("membership_update", joined()))


def test_what_came_before_is_dropped() -> None:
    one, b, _ = linked()
    event = b.says("membership_update", joined())
    one.step(event)
    dropped_as("duplicate", one, event)


def test_the_memory_for_ids_is_bounded() -> None:
    one = One(settings=msgspec.structs.replace(LAN, seen_ids_max=3))
    b = Peer("b")
    one.link(b)
    messages = [b.says("membership_update", joined()) for _ in range(5)]
    one.step(*messages)
    assert len(one.machine._core.intake._seen) == 3
    dropped_as("duplicate", one, messages[-1])


def test_clocks_may_differ_by_minutes_but_not_by_hours() -> None:
    one, b, _ = linked()
    assert visible(one.step(b.says("membership_update", joined("x"), now=-400.0)))
    assert visible(one.step(b.says("membership_update", joined("y"), now=400.0)))
    dropped_as("expired", one, b.says("membership_update", joined("z"), now=-3600.0))
    dropped_as("lifetime", one, b.says("membership_update", joined("z"), now=3600.0))


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x80", b"\x93\x01\x02\x03", b"\x91" * 5000, b"\xa4role"])
def test_a_payload_that_is_none_is_dropped(payload: bytes) -> None:
    one, b, _ = linked()
    dropped_as("payload", one, signed(b.says("membership_update", joined()), payload=Raw(payload)))


def test_a_payload_may_have_a_million_bytes_and_no_more() -> None:
    one, b, _ = linked()
    dropped_as("too_large", one, signed(b.says("rumor", Rumor(name="x")), payload=Raw(b"\xc0" * 1_000_001)))


def test_what_is_between_two_nodes_is_not_passed_on_by_a_third() -> None:
    one, b, c = linked()
    event = b.says("membership_update", joined())
    further = signed(event, hop_count=1, max_hops=3, propagation_path=("b", "c"))
    dropped_as("hops", one, Received(c.info.node_id, further.message))


@pytest.mark.parametrize(
    "about",
    [
        node("x", cluster_id="other"),
        node(""),
        node("x/y"),
        node("x\n"),
        node("x" * 200),
        node("x", incarnation=-1),
        node("x", incarnation=2**60),
        node("x", started=float("inf")),
        node("x", advertised_urls=("tcp://x",) * 17),
        node("x", advertised_urls=("x" * 600,)),
        node("x", meta={str(n): "" for n in range(40)}),
        node("x", meta={"x": "y" * 300}),
    ],
)
def test_a_node_that_can_not_be_or_is_of_another_cluster_is_not_taken(about: Any) -> None:
    one, b, _ = linked()
    reason: Reason = "cluster" if about.cluster_id == "other" else "node"
    dropped_as(reason, one, b.says("membership_update", said("join", about, "b")))


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("key", {"key": ""}),
        ("key", {"key": "x" * 600}),
        ("key", {"version": 0}),
        ("key", {"version": 2**60}),
        ("key", {"timestamp": float("nan")}),
        ("key", {"ttl": -1.0}),
        ("too_large", {"value": "x" * 70_000}),
        ("owner", {"key": "node/c/f"}),
        ("owner", {"source_node": ""}),
        ("owner", {"source_node": "unknown", "key": "node/unknown/f"}),
    ],
)
def test_a_key_that_is_over_its_limits_or_anothers_is_not_taken(reason: Reason, changes: dict[str, Any]) -> None:
    one, b, _ = linked()
    fields = {"key": "x", "value": 1, "version": 1, "timestamp": EPOCH, "source_node": "b", **changes}
    dropped_as(reason, one, b.says("state_update", StateUpdate(**fields)))


def test_one_bad_update_does_not_spoil_the_others_of_its_message() -> None:
    one, b, _ = linked()
    updates = Updates(members=(joined("good"), said("join", node("bad/"), "b"), joined("better")))
    changed = only(one.step(b.says("rumor", Rumor(updates=updates))), NodeChanged)
    assert [change.node.node_id for change in changed] == ["good", "better"]
    assert one.machine.dropped["node"] == 1


def test_a_comparison_with_too_many_versions_or_parts_is_dropped() -> None:
    one, b, _ = linked()
    many = {f"n{n}": (0, "r") for n in range(5000)}
    dropped_as("too_large", one, b.says("anti_entropy", AntiEntropy(step="items", member_versions=many)))
    dropped_as("payload", one, b.says("anti_entropy", AntiEntropy(step="buckets", buckets=(1, 2, 3))))


hostile = st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(max_size=5), plain)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_no_message_whatever_makes_a_machine_fail_or_grow(data: st.DataObject) -> None:
    """The envelope is in order, the payload is anything that the codec takes for its type."""
    one, b, _ = linked()
    for _ in range(data.draw(st.integers(1, 4))):
        message_type = data.draw(st.sampled_from(sorted(PAYLOADS)))
        names = [field.name for field in msgspec.structs.fields(PAYLOADS[message_type])]
        fields = data.draw(st.dictionaries(st.sampled_from(names), hostile))
        event = signed(
            b.says("rumor", Rumor(name="x"), "u"),
            message_type=message_type,
            payload=Raw(msgspec.msgpack.encode(fields)),
        )
        effects = one.step(event)
        assert isinstance(effects[-1], WakeAt)
    one.wait(30)


envelopes = st.fixed_dictionaries(
    {},
    optional={
        "message_id": st.text(max_size=4),
        "sender_id": st.sampled_from(["b", "c", ""]),
        "vector_clock": st.dictionaries(st.text(max_size=2), st.integers()),
        "sequence_number": st.integers(),
        "ttl": st.integers(),
        "hop_count": st.integers(-2, 5),
        "max_hops": st.integers(-2, 5),
        "created_at": st.floats(),
        "expires_at": st.floats(),
        "propagation_path": st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=4).map(tuple),
        "seen_by": st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=4).map(tuple),
    },
)


@settings(max_examples=400, deadline=None)
@given(envelopes)
def test_no_envelope_whatever_makes_a_machine_fail(changes: dict[str, Any]) -> None:
    one, b, _ = linked()
    event = signed(b.says("rumor", Rumor(name="x", data=1)), **changes)
    before = sum(one.machine.dropped.values())
    effects = one.step(event)
    message: Gossip
    for message in (effect.message for effect in effects if isinstance(effect, Send)):
        if message.message_id == event.message.message_id:
            assert message.ttl == event.message.ttl - 1
            assert message.hop_count <= message.max_hops
    assert sum(one.machine.dropped.values()) - before in (0, 1)
