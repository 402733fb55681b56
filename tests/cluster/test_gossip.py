"""The note's "Gossip Protocol": one test a sentence, of what a node sends and of what it does with what it gets."""

from __future__ import annotations

import hashlib
import random
import zlib

import msgspec
import pytest
from msgspec import Raw
from tests.cluster.machines import EPOCH, One, Peer, node, only, payloads, said, sent

from mpreg.cluster.effects import Decided, Dial, HealthHeard, Heard, NodeChanged, StateChanged
from mpreg.cluster.events import Describe, Event, Health, Propose, Put, Received, Spread, Tick, Withdraw
from mpreg.cluster.machine import Machine
from mpreg.cluster.owned import own_key
from mpreg.cluster.settings import LAN
from mpreg.cluster.shared_state import Entry
from mpreg.errors import ClusterError
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.gossip import (
    AntiEntropy,
    CacheUpdate,
    ConsensusProposal,
    ConsensusVote,
    Gossip,
    Heartbeat,
    MembershipAck,
    MembershipProbe,
    NodeHealth,
    Rumor,
    StateUpdate,
    checksum_of,
    digest_of,
    in_messagepack,
)

STILL = msgspec.structs.replace(LAN, probe_interval_s=1e6)
"""Nobody is probed, so nobody has to answer."""


def quiet(node_id: str = "a") -> One:
    return One(node_id, STILL)


def linked(*names: str) -> tuple[One, list[Peer]]:
    one = quiet()
    peers = [Peer(name) for name in names]
    one.link(*peers)
    return one, peers


def state_update(key: str, value: object, version: int, by: str = "b") -> StateUpdate:
    return StateUpdate(key=key, value=value, version=version, timestamp=EPOCH, source_node=by)


def shown(one: One) -> dict[str, object]:
    return {key: msgspec.msgpack.decode(entry.value) for key, entry in one.machine.state().items()}


def exchange(a: One, b: One, *, rounds: int = 12) -> None:
    """Everything that two linked machines send each other, until they have nothing more to say."""
    a_name, b_name = a.machine.me.node_id, b.machine.me.node_id
    going = [(a, b_name, each) for each in sent(a.wait(60), "anti_entropy", b_name)][:1]
    for _ in range(rounds):
        following = []
        for source, to, message in going:
            target = b if source is a else a
            assert to == target.machine.me.node_id
            target.now = max(a.now, b.now)
            effects = target.step(Received(source.machine.me.node_id, message))
            following += [
                (target, source.machine.me.node_id, each)
                for each in sent(effects, "anti_entropy", a_name if target is b else b_name)
            ]
        going = following
    assert going == []


# The envelope.


def test_a_message_has_every_field_of_the_note_and_survives_the_wire() -> None:
    one, _ = linked("b")
    message = sent(one.wait(2))[0]
    written = msgspec.msgpack.decode(codec.encode(message, Encoding.MSGPACK))
    assert set(written) >= {
        "role", "message_id", "message_type", "sender_id", "payload", "vector_clock", "sequence_number", "ttl",
        "hop_count", "max_hops", "digest", "checksum", "created_at", "expires_at", "propagation_path", "seen_by",
    }  # fmt: skip
    assert written["role"] == "gossip"
    assert codec.decode(codec.encode(message, Encoding.MSGPACK), Encoding.MSGPACK) == message


def test_digest_and_checksum_are_what_they_are_called() -> None:
    one, _ = linked("b")
    message = sent(one.wait(2))[0]
    assert message.digest == "sha256:" + hashlib.sha256(message.payload).hexdigest()
    covered = "\n".join(
        [message.message_id, message.message_type, message.sender_id, str(message.sequence_number), message.digest]
    )
    assert message.checksum == f"crc32:{zlib.crc32(covered.encode()):08x}"


def test_a_message_in_json_becomes_one_in_messagepack_if_its_sums_are_right() -> None:
    one, [b] = linked("b")
    plain = b.says("membership_update", said("join", node("new"), "b")).message
    payload = Raw(msgspec.json.encode(msgspec.msgpack.decode(plain.payload)))
    digest = digest_of(payload)
    covered = (plain.message_id, plain.message_type, plain.sender_id, plain.sequence_number, digest)
    written = msgspec.structs.replace(plain, payload=payload, digest=digest, checksum=checksum_of(*covered))
    received = codec.decode(codec.encode(written, Encoding.JSON), Encoding.JSON)
    assert isinstance(received, Gossip)
    assert only(one.step(Received("b", in_messagepack(received))), NodeChanged)
    forged = in_messagepack(msgspec.structs.replace(received, message_id="other", payload=Raw(b"{}")))
    assert only(one.step(Received("b", forged)), NodeChanged) == []
    assert one.machine.dropped["digest"] == 1


def test_ids_are_unique_sequence_numbers_grow_and_messages_expire() -> None:
    one, _ = linked("b", "c")
    messages = sent(one.wait(20))
    assert len({message.message_id for message in messages}) == len(messages)
    numbers = [message.sequence_number for message in messages]
    assert numbers == sorted(set(numbers))
    assert all(message.expires_at > message.created_at for message in messages)
    assert all((message.sender_id, message.propagation_path) == ("a", ("a",)) for message in messages)


def test_the_vector_clock_counts_local_events_and_takes_over_what_is_higher() -> None:
    one, [b] = linked("b")
    before = one.machine.vector_clock["a"]
    one.step(Put("x", 1))
    assert one.machine.vector_clock["a"] == before + 1
    event = b.says("heartbeat", Heartbeat(health=NodeHealth()))
    one.step(Received("b", msgspec.structs.replace(event.message, vector_clock={"b": 38, "a": 0, "nobody": 7})))
    assert one.machine.vector_clock == {"a": before + 1, "b": 38}


# state_update, config_update.


def test_a_state_update_carries_key_value_version_time_and_source() -> None:
    one, _ = linked("b")
    one.wait(20)
    one.step(Put("colour", "red"))
    [message] = sent(one.wait(0.2), "state_update")
    assert msgspec.msgpack.decode(message.payload) == {
        "key": "colour",
        "value": "red",
        "version": 1,
        "timestamp": EPOCH + 20,
        "source_node": "a",
    }
    assert message.vector_clock["a"] > 0


def test_configuration_travels_as_config_update() -> None:
    one, _ = linked("b")
    one.wait(20)
    one.step(Put("config.limit", 5))
    assert payloads(one.wait(0.2), "config_update")[0].value == 5


def test_a_newer_version_is_taken_told_and_passed_on_and_an_older_one_is_not() -> None:
    one, [b] = linked("b")
    one.wait(20)
    [changed] = only(one.step(b.says("state_update", state_update("x", "new", 5), now=20)), StateChanged)
    assert (changed.key, changed.version, changed.source_node) == ("x", 5, "b")
    assert payloads(one.wait(0.2), "state_update")[0].value == "new"
    assert only(one.step(b.says("state_update", state_update("x", "old", 4), now=20)), StateChanged) == []
    assert shown(one) == {"x": "new"}


def test_a_change_of_ones_own_counts_for_more_than_what_was_there() -> None:
    one, [b] = linked("b")
    one.step(b.says("state_update", state_update("x", "theirs", 5)))
    [changed] = only(one.step(Put("x", "mine")), StateChanged)
    assert changed.version == 6
    one.step(Withdraw("x"))
    assert shown(one) == {}
    assert (
        only(
            one.step(
                b.says("state_update", state_update("x", "theirs", 6)),
            ),
            StateChanged,
        )
        == []
    )


def test_setting_a_key_to_what_it_is_tells_nobody() -> None:
    one, _ = linked("b")
    one.step(Put("x", 1))
    assert only(one.step(Put("x", 1)), StateChanged) == []


def test_a_key_with_a_ttl_goes_away_by_itself_and_does_not_come_back() -> None:
    one, [b] = linked("b")
    update = msgspec.structs.replace(state_update("x", 1, 1), ttl=30.0)
    one.step(b.says("state_update", update))
    assert shown(one) == {"x": 1}
    changes = only(one.wait(50), StateChanged)
    assert [change.value for change in changes] == [None]
    assert only(one.step(b.says("state_update", update, now=50)), StateChanged) == []


def test_a_tombstone_is_forgotten_after_its_time() -> None:
    one, _ = linked("b")
    one.step(Put("x", 1))
    one.step(Withdraw("x"))
    assert one.machine._core.state.get("x") is not None
    one.machine.step(3700.0, Put("y", 1))
    one.now = 3700.0
    one.wait(20)
    assert one.machine._core.state.get("x") is None


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (Put("", 1), "CLUSTER_INVALID_KEY"),
        (Put("x" * 600, 1), "CLUSTER_INVALID_KEY"),
        (Put(own_key("b", "f"), 1), "CLUSTER_INVALID_KEY"),
        (Put("x", "y" * 70_000), "CLUSTER_INVALID_VALUE"),
        (Put("x", object()), "CLUSTER_INVALID_VALUE"),
        (Put("x", 1, ttl_s=-1.0), "CLUSTER_INVALID_VALUE"),
        (Propose("p", "x", "y" * 70_000), "CLUSTER_INVALID_VALUE"),
        (Spread(Rumor(name="x", data="y" * 70_000)), "CLUSTER_INVALID_VALUE"),
    ],
)
def test_what_is_over_a_limit_is_refused_by_name_and_changes_nothing(event: Event, code: str) -> None:
    one, _ = linked("b")
    one.wait(20)
    before = (one.machine.digest, dict(one.machine.vector_clock), shown(one))
    with pytest.raises(ClusterError) as failed:
        one.machine.step(one.now, event)
    assert failed.value.code == code
    assert failed.value.state_changed is False
    assert (one.machine.digest, dict(one.machine.vector_clock), shown(one)) == before


# Keys that belong to a node.


def test_keys_of_a_node_are_gone_with_it_and_back_when_it_lives() -> None:
    one, [b, c] = linked("b", "c")
    key = own_key("b", "functions/0")
    one.step(b.says("state_update", state_update(key, ["f"], 1)))
    effects = one.step(c.says("membership_update", said("dead", node("b"), "c")))
    assert [type(each) for each in effects[:2]] == [NodeChanged, StateChanged]
    assert only(effects, StateChanged)[0].value is None
    effects = one.step(b.says("membership_update", said("update", node("b", incarnation=1), "b")))
    assert [each.key for each in only(effects, StateChanged)] == [key]
    assert shown(one) == {key: ["f"]}


def test_a_node_contradicts_what_its_former_run_has_left() -> None:
    one, [b] = linked("b")
    kept, gone = own_key("a", "kept"), own_key("a", "gone")
    one.step(Put(kept, "now"))
    one.step(b.says("state_update", state_update(kept, "then", 7, "a")))
    one.step(b.says("state_update", state_update(gone, "then", 7, "a")))
    assert shown(one) == {kept: "now"}
    entries: dict[str, Entry | None] = {key: one.machine._core.state.get(key) for key in (kept, gone)}
    assert [entry.version for entry in entries.values() if entry is not None] == [8, 8]


# heartbeat, membership_probe, membership_ack.


def test_a_heartbeat_tells_how_the_node_is_doing() -> None:
    one, [b] = linked("b")
    one.step(Health(NodeHealth(load=0.5, calls=3)))
    assert payloads(one.wait(20), "heartbeat")[0].health == NodeHealth(load=0.5, calls=3)
    [heard] = only(one.step(b.says("heartbeat", Heartbeat(health=NodeHealth(load=0.9)), now=20)), HealthHeard)
    assert heard == HealthHeard("b", NodeHealth(load=0.9))


def test_a_probe_is_acknowledged_with_its_u_and_the_nodes_health() -> None:
    one, [b] = linked("b")
    one.step(Health(NodeHealth(load=0.5, draining=True)))
    [ack] = sent(one.step(b.says("membership_probe", MembershipProbe(target="a"), "p1")), "membership_ack")
    assert ack.u == "p1"
    payload = msgspec.msgpack.decode(ack.payload)
    assert (payload["target"], payload["health"]) == ("a", {"load": 0.5, "draining": True})


def test_a_probe_for_another_is_passed_on_and_its_answer_too() -> None:
    one, [b, c] = linked("b", "c")
    [probe] = sent(one.step(b.says("membership_probe", MembershipProbe(target="c"), "p1")), "membership_probe")
    assert probe.u != "p1"
    [answer] = sent(one.step(c.says("membership_ack", MembershipAck(target="c"), str(probe.u))), "membership_ack", "b")
    assert answer.u == "p1"
    assert msgspec.msgpack.decode(answer.payload)["target"] == "c"


def test_who_is_asked_for_another_and_gets_no_answer_says_that_it_is_well_itself() -> None:
    one, [b, _] = linked("b", "c")
    one.step(b.says("membership_probe", MembershipProbe(target="c"), "p1"))
    acks = payloads(one.wait(0.6), "membership_ack", "b")
    assert [(ack.target, ack.reached) for ack in acks] == [("c", False)]


def test_a_probe_of_a_former_run_is_not_answered() -> None:
    one, [b] = linked("b")
    probe = MembershipProbe(target="a", run_id="another")
    assert sent(one.step(b.says("membership_probe", probe, "p1")), "membership_ack") == []


# rumor, cache_update.


def test_a_rumor_reaches_all_links_at_once_and_is_told_once() -> None:
    one, [b, _, _] = linked("b", "c", "d")
    effects = one.step(Spread(Rumor(name="greeting", data="hello")))
    assert len(sent(effects, "rumor")) == 3
    assert only(effects, Heard) == []
    other, [a] = quiet("b"), [Peer("a")]
    other.link(a)
    message = sent(effects, "rumor", "b")[0]
    assert [each.message for each in only(other.step(Received("a", message)), Heard)] == [message]
    assert only(other.step(Received("a", message)), Heard) == []
    assert b.info.node_id == "b"


def test_a_rumor_goes_on_to_who_is_not_known_to_have_it_with_less_to_live() -> None:
    one, [b, c] = linked("b", "c")
    start = quiet("b")
    start.link(Peer("a"))
    [message] = sent(start.step(Spread(CacheUpdate(operation="put", key={"identifier": "k"}))), "cache_update")
    [further] = sent(one.step(Received("b", message)), "cache_update")
    assert (further.ttl, further.hop_count) == (message.ttl - 1, 1)
    assert further.propagation_path == ("b", "a")
    assert set(further.seen_by) == {"b", "a", "c"}
    assert (further.message_id, further.digest, further.checksum) == (
        message.message_id,
        message.digest,
        message.checksum,
    )
    taken = quiet("c")
    taken.link(Peer("a"), Peer("b"))
    assert only(taken.step(Received("a", further)), Heard)
    assert b.info.node_id != c.info.node_id


@pytest.mark.parametrize("end", [{"ttl": 0}, {"max_hops": 0}])
def test_a_rumor_ends_with_its_ttl_and_hops(end: dict[str, int]) -> None:
    one, [b, _] = linked("b", "c")
    event = b.says("rumor", Rumor(name="x"))
    last = Received("b", msgspec.structs.replace(event.message, **{"max_hops": 3, "ttl": 3, **end}))
    effects = one.step(last)
    assert only(effects, Heard)
    assert sent(effects, "rumor") == []


# anti_entropy.


def test_two_that_agree_say_so_in_one_message() -> None:
    one, [b] = linked("b")
    digest = one.machine.digest
    assert sent(one.step(b.says("anti_entropy", AntiEntropy(step="digest", digest=digest))), "anti_entropy") == []


def test_differences_are_found_and_each_gets_what_it_lacks() -> None:
    a, b = quiet("a"), quiet("b")
    a.step(Put("only a", 1), Put("both", "older"))
    b.step(Put("only b", 2), Put("both", "x"), Put("both", "newer"), Put("gone", 1), Withdraw("gone"))
    a.step(Put("gone", 1))
    a.link(Peer("b", b.machine.me))
    b.link(Peer("a", a.machine.me))
    exchange(a, b)
    assert shown(a) == shown(b) == {"only a": 1, "only b": 2, "both": "newer"}
    assert a.machine.digest == b.machine.digest


def test_what_is_gone_is_made_known_to_who_still_has_it() -> None:
    a, b = quiet("a"), quiet("b")
    b.step(Put("x", 1))
    a.step(Put("x", 1), Withdraw("x"))
    a.link(Peer("b", b.machine.me), Peer("c"))
    b.link(Peer("a", a.machine.me), Peer("c"))
    a.step(Peer("c").says("membership_update", said("leave", node("c"), "c")))
    exchange(a, b)
    assert shown(a) == shown(b) == {}
    assert a.machine.digest == b.machine.digest
    assert b.machine.members()["c"].state == "left"


def test_a_state_that_does_not_fit_one_message_comes_in_several() -> None:
    a, b = quiet("a"), quiet("b")
    for number in range(40):
        b.step(Put(f"key{number}", "x" * 30_000))
    a.link(Peer("b", b.machine.me))
    b.link(Peer("a", a.machine.me))
    exchange(a, b, rounds=60)
    assert len(shown(a)) == 40
    assert a.machine.digest == b.machine.digest


def test_a_lost_step_ends_a_comparison_and_the_next_one_makes_up_for_it() -> None:
    a, b = quiet("a"), quiet("b")
    b.step(Put("x", 1))
    a.link(Peer("b", b.machine.me))
    b.link(Peer("a", a.machine.me))
    sent(a.wait(60), "anti_entropy")
    exchange(a, b)
    assert shown(a) == {"x": 1}


# consensus_proposal, consensus_vote.


def vote(peer: Peer, proposal_id: str, *, accept: bool, now: float = 0.0) -> Received:
    ballot = ConsensusVote(
        proposal_id=proposal_id, voter=peer.info.node_id, accept=accept, reason="" if accept else "no"
    )
    return peer.says("consensus_vote", ballot, now=now)


def test_a_proposal_is_accepted_by_a_majority_and_applied() -> None:
    one, [b, c, d, _] = linked("b", "c", "d", "e")
    effects = one.step(Propose("p", "config.limit", 5))
    assert len(sent(effects, "consensus_proposal")) == 4
    assert only(one.step(vote(b, "p", accept=True)), Decided) == []
    effects = one.step(vote(c, "p", accept=True))
    assert [each.outcome for each in only(effects, Decided)] == ["accepted"]
    assert shown(one) == {"config.limit": 5}
    assert only(one.step(vote(d, "p", accept=True)), Decided) == []


def test_a_proposal_that_can_not_win_any_more_is_rejected_and_ends() -> None:
    one, [b, c, d, _] = linked("b", "c", "d", "e")
    one.step(Propose("p", "x", 5), vote(b, "p", accept=False), vote(c, "p", accept=False))
    effects = one.step(vote(d, "p", accept=False))
    assert [(each.outcome, each.reason) for each in only(effects, Decided)] == [("rejected", "no")]
    assert all(payload.ended for payload in payloads(effects, "consensus_proposal"))
    assert shown(one) == {}


def test_a_proposal_without_an_answer_expires_after_having_asked_again() -> None:
    one, _ = linked("b", "c")
    one.step(Propose("p", "x", 5))
    effects = one.wait(6)
    assert [each.outcome for each in only(effects, Decided)] == ["expired"]
    assert len([each for each in payloads(effects, "consensus_proposal", "b") if not each.ended]) == 5


def test_the_dead_count_for_the_majority_and_those_that_left_do_not() -> None:
    one, [b, *_] = linked("b", "c", "d", "e")
    for name in "cde":
        one.step(b.says("membership_update", said("dead", node(name), "b")))
    effects = one.step(Propose("p", "x", 5), vote(b, "p", accept=True))
    assert only(effects, Decided) == []
    for name in "cde":
        one.step(b.says("membership_update", said("leave", node(name), name)))
    effects = one.step(Propose("q", "y", 5), vote(b, "q", accept=True))
    assert [each.outcome for each in only(effects, Decided)] == ["accepted"]


def test_nobody_votes_twice_nor_for_another() -> None:
    one, [b, c, *_] = linked("b", "c", "d", "e")
    one.step(Propose("p", "x", 5))
    assert only(one.step(vote(b, "p", accept=True), vote(b, "p", accept=True)), Decided) == []
    forged = ConsensusVote(proposal_id="p", voter="c", accept=True)
    assert only(one.step(b.says("consensus_vote", forged)), Decided) == []
    assert one.machine.dropped["sender"] == 1
    assert only(one.step(vote(c, "p", accept=True)), Decided)


def proposal(proposal_id: str, base: int = 0, *, ended: bool = False) -> ConsensusProposal:
    return ConsensusProposal(proposal_id=proposal_id, key="x", value=1, base_version=base, ended=ended)


def voted(one: One, peer: Peer, asked: ConsensusProposal) -> bool:
    [found] = payloads(one.step(peer.says("consensus_proposal", asked, now=one.now)), "consensus_vote")
    return bool(found.accept)


def test_a_member_votes_once_for_each_version_of_a_key() -> None:
    one, [b, c] = linked("b", "c")
    assert voted(one, b, proposal("p"))
    assert voted(one, b, proposal("p"))
    assert not voted(one, c, proposal("q"))
    assert voted(one, c, proposal("q", 1))


def test_a_vote_binds_until_the_proposal_ends_or_can_not_be_accepted_any_more() -> None:
    one, [b, c] = linked("b", "c")
    assert voted(one, b, proposal("p"))
    one.step(c.says("consensus_proposal", proposal("p", ended=True)))
    assert not voted(one, c, proposal("q"))
    one.step(b.says("consensus_proposal", proposal("p", ended=True)))
    assert voted(one, c, proposal("q"))
    one.now = 2 * one.machine.settings.vote_timeout_s + 1
    one.link(b)
    assert voted(one, b, proposal("r"))


def test_a_member_that_knows_a_newer_value_refuses() -> None:
    one, [b] = linked("b")
    one.step(Put("x", 7))
    assert not voted(one, b, proposal("p"))
    assert voted(one, b, proposal("p", 1))


def test_of_two_proposals_at_once_at_most_one_is_accepted() -> None:
    ones = {name: quiet(name) for name in "abc"}
    for one in ones.values():
        one.link(*(Peer(name, other.machine.me) for name, other in ones.items() if other is not one))
    going: list[tuple[str, str, Gossip]] = []

    def do(name: str, event: Event) -> list[Decided]:
        effects = ones[name].machine.step(0.0, event)
        for other in ones:
            going.extend((name, other, message) for message in sent(effects, to=other))
        return only(effects, Decided)

    decided = do("a", Propose("p", "x", "a")) + do("b", Propose("q", "x", "b"))
    while going:
        source, target, message = going.pop(0)
        decided += do(target, Received(source, message))
    assert sorted(each.outcome for each in decided) in (["accepted", "rejected"], ["rejected", "rejected"])


# Describing oneself, and forgetting.


def test_a_node_that_changes_its_addresses_tells_so_with_a_higher_incarnation() -> None:
    one, _ = linked("b")
    one.wait(20)
    one.step(Describe(advertised_urls=("tcp://elsewhere:6668",), meta={"zone": "1"}))
    [update] = payloads(one.wait(0.2), "membership_update")
    assert (update.event_type, update.node.incarnation) == ("update", 1)
    assert (update.node.advertised_urls, update.node.meta) == (("tcp://elsewhere:6668",), {"zone": "1"})
    one.step(Describe(meta={"zone": "1"}))
    assert one.machine.me.incarnation == 1
    with pytest.raises(ClusterError) as failed:
        one.step(Describe(meta={str(n): "" for n in range(100)}))
    assert failed.value.code == "CLUSTER_INVALID_NODE"


def test_the_new_addresses_of_another_node_are_told() -> None:
    one, [b] = linked("b")
    moved = node("b", incarnation=1, advertised_urls=("tcp://elsewhere:6668",))
    [changed] = only(one.step(b.says("membership_update", said("update", moved))), NodeChanged)
    assert (changed.state, changed.node.advertised_urls) == ("alive", ("tcp://elsewhere:6668",))


def test_a_tombstone_that_everyone_has_seen_is_forgotten_before_its_time() -> None:
    one, [b, c] = linked("b", "c")
    one.step(Put("x", 1), Withdraw("x"))
    one.now = one.machine.settings.clock_skew_max_s + 1

    def agree(peer: Peer) -> None:
        one.step(peer.says("anti_entropy", AntiEntropy(step="digest", digest=one.machine.digest), now=one.now))

    agree(b)
    assert one.machine._core.state.get("x") is not None
    agree(c)
    assert one.machine._core.state.get("x") is None


def test_the_dead_are_forgotten_after_their_time() -> None:
    one, [b] = linked("b")
    one.step(b.says("membership_update", said("dead", node("c"), "b")))
    one.step(b.says("membership_update", said("leave", node("d"), "d")))
    assert set(one.machine.members()) == {"b", "c", "d"}
    one.now = one.machine.settings.dead_forget_s + 20
    one.step()
    one.wait(20)
    assert set(one.machine.members()) == {"b"}


def test_what_is_said_of_the_long_dead_is_not_taken() -> None:
    one, [b] = linked("b")
    one.step(b.says("membership_update", said("dead", node("c"), "b", at=EPOCH - 4000)))
    assert "c" not in one.machine.members()


def test_members_that_are_known_from_before_are_told_and_dialled() -> None:
    machine = Machine(node("a"), STILL, random.Random(1), EPOCH, [node("a"), node("b"), node("x/y")])
    effects = machine.step(0.0, Tick())
    assert [(each.node.node_id, each.state) for each in only(effects, NodeChanged)] == [("b", "alive")]
    assert [each.node_id for each in only(machine.step(2.0, Tick()), Dial)] == ["b"]


def test_a_name_that_can_not_be_a_nodes_is_refused() -> None:
    for name in ("", "a/b", "x" * 200, "a\nb"):
        with pytest.raises(ClusterError) as failed:
            Machine(node(name))
        assert failed.value.code == "CLUSTER_INVALID_NODE"
