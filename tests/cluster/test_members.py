"""What is said of a node counts by incarnation, run and state, so order and repetition do not matter."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cluster.machines import EPOCH, node

from mpreg.cluster.digests import Digest
from mpreg.cluster.members import MEMBERS_MAX, Members
from mpreg.cluster.record import ALIVE, DEAD, LEFT, SUSPECT, Record, from_update, to_update

records = st.builds(
    lambda name, incarnation, run, state: Record(
        node(name, incarnation=incarnation, run=str(run), started=EPOCH + run), state, "z", EPOCH
    ),
    st.sampled_from("abc"),
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from([ALIVE, SUSPECT, DEAD, LEFT]),
)


def table(said: list[Record]) -> Members:
    members = Members(Digest())
    for record in said:
        if members.counts_for_more(record):
            members.set(record)
    return members


def shown(members: Members) -> dict[str, tuple[object, ...]]:
    return {record.node.node_id: record.rank for record in members}


def ranks(node_id: str, *what: tuple[int, int]) -> list[Record]:
    return [Record(node(node_id, incarnation=incarnation), state, "z", EPOCH) for incarnation, state in what]


def test_at_one_incarnation_left_beats_dead_beats_suspect_beats_alive() -> None:
    alive, suspect, dead, left = ranks("b", (3, ALIVE), (3, SUSPECT), (3, DEAD), (3, LEFT))
    assert alive.rank < suspect.rank < dead.rank < left.rank


def test_a_higher_incarnation_beats_every_state_of_a_lower_one() -> None:
    left, alive = ranks("b", (3, LEFT), (4, ALIVE))
    assert left.rank < alive.rank


def test_at_one_incarnation_the_run_that_started_later_counts() -> None:
    old = Record(node("b", run="1", started=EPOCH), DEAD, "z", EPOCH)
    new = Record(node("b", run="2", started=EPOCH + 1), ALIVE, "z", EPOCH)
    assert old.rank < new.rank


@settings(max_examples=300)
@given(st.lists(records, max_size=12), st.randoms(use_true_random=False))
def test_whatever_the_order_and_however_often_all_end_up_with_the_same(
    said: list[Record], order: random.Random
) -> None:
    again = said + said[: len(said) // 2]
    order.shuffle(again)
    one, other = table(said), table(again)
    assert shown(one) == shown(other)
    assert set(one.live) == set(other.live) == {record.node.node_id for record in one if record.is_live}


@settings(max_examples=200)
@given(st.lists(records, max_size=12), st.lists(records, max_size=12))
def test_two_tables_have_one_digest_exactly_if_the_same_nodes_live(a: list[Record], b: list[Record]) -> None:
    def living(members: Members) -> set[tuple[str, int, str]]:
        return {(each.node.node_id, each.node.incarnation, each.node.run_id) for each in members if each.is_live}

    digests = []
    for said in (a, b):
        digest = Digest()
        members = Members(digest)
        for record in said:
            if members.counts_for_more(record):
                members.set(record)
        digests.append((digest.total, digest.parts, living(members)))
    assert (digests[0][:2] == digests[1][:2]) is (digests[0][2] == digests[1][2])


def test_the_table_is_bounded_and_forgets_the_dead_first() -> None:
    members = Members(Digest())
    for number in range(MEMBERS_MAX):
        members.set(Record(node(f"n{number}"), DEAD if number == 5 else ALIVE, "z", EPOCH))
    assert members.has_room("one more")
    assert members.set(Record(node("one more"), ALIVE, "z", EPOCH)) == "n5"
    assert len(members) == MEMBERS_MAX
    assert not members.has_room("another")
    assert members.has_room("n1")


def test_forgetting_a_node_takes_it_out_of_the_digest() -> None:
    digest = Digest()
    members = Members(digest)
    members.set(Record(node("b"), ALIVE, "z", EPOCH))
    assert digest.total
    members.forget("b")
    assert digest.total == 0
    assert not any(digest.parts)
    assert "b" not in members.live


def test_the_note_names_join_and_update_and_leave() -> None:
    first, later, left = ranks("b", (0, ALIVE), (1, ALIVE), (1, LEFT))
    assert [to_update(record).event_type for record in (first, later, left)] == ["join", "update", "leave"]
    for record in (first, later, left):
        assert from_update(to_update(record)) == record
