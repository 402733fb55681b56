"""Two nodes with one name: the second one is refused while the first one lives; two that meet after a partition are
told apart, and the one that started later has to stop. A former life is no namesake."""

from __future__ import annotations

import pytest
from tests.cluster.machines import One, Peer, node, only, said

from mpreg.cluster.effects import NameTaken
from mpreg.cluster.events import Linked, Unlinked


def test_a_name_is_refused_while_who_has_it_lives_and_has_a_link() -> None:
    one, b = One(), Peer("b")
    second = node("b", run="2", started=b.info.started + 1)
    assert one.machine.refuses(second) is None
    one.link(b)
    assert one.machine.refuses(second) == b.info
    assert one.machine.refuses(b.info) is None
    one.step(Unlinked("b"))
    assert one.machine.refuses(second) is None


def test_this_nodes_own_name_is_refused() -> None:
    one = One()
    assert one.machine.refuses(node("a", run="2")) == one.machine.me
    assert one.machine.refuses(one.machine.me) is None


def test_a_suspect_may_be_replaced() -> None:
    one, b, c = One(), Peer("b"), Peer("c")
    one.link(b, c)
    one.step(c.says("membership_update", said("suspect", b.info, "c")))
    assert one.machine.refuses(node("b", run="2")) is None


def test_what_is_left_of_a_former_life_is_outbid_at_once() -> None:
    one, b = One(started=2_000_000_000.0), Peer("b")
    one.link(b)
    for incarnation in (3, 9, 20):
        former = node("a", run="0", incarnation=incarnation)
        assert only(one.step(b.says("membership_update", said("update", former, "b"))), NameTaken) == []
        assert one.machine.me.incarnation == incarnation + 1


def test_a_living_namesake_that_started_before_is_yielded_to_once() -> None:
    one, b = One(started=2_000_000_000.0), Peer("b")
    one.link(b)
    taken: list[NameTaken] = []
    for _ in range(6):
        rival = node("a", run="0", incarnation=one.machine.me.incarnation + 1)
        taken += only(one.step(b.says("membership_update", said("update", rival, "b"))), NameTaken)
    assert [each.holder.run_id for each in taken] == ["a-0"]


def test_a_living_namesake_that_started_later_is_never_yielded_to() -> None:
    one, b = One(), Peer("b")
    one.link(b)
    for _ in range(8):
        rival = node("a", run="9", started=3_000_000_000.0, incarnation=one.machine.me.incarnation + 1)
        assert only(one.step(b.says("membership_update", said("update", rival, "b"))), NameTaken) == []
        assert one.machine.me.incarnation > rival.incarnation


@pytest.mark.parametrize("first_speaks", [True, False])
def test_two_that_both_live_end_with_the_one_that_started_first(first_speaks: bool) -> None:
    """They hear of each other through b, as after a partition in which both had the name."""
    first, second, b = One(), One(started=2_000_000_000.0, run="2"), Peer("b")
    first.link(b)
    second.link(b)
    stopped: list[One] = []
    speaker, listener = (first, second) if first_speaks else (second, first)
    for _ in range(20):
        effects = listener.step(b.says("membership_update", said("update", speaker.machine.me, "b")))
        if only(effects, NameTaken):
            stopped.append(listener)
        speaker, listener = listener, speaker
    assert stopped == [second]


def test_a_link_of_the_namesake_does_not_change_what_is_known_of_the_first() -> None:
    one, b = One(), Peer("b", node("b", incarnation=3))
    one.link(b)
    one.step(Linked(node("b", run="2", started=b.info.started + 1)))
    member = one.machine.member("b")
    assert member is not None
    assert member.node.run_id == "b-1"
