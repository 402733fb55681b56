"""Slots: against the server's own arithmetic, and what it says of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.store.servers import Connection, cluster

from mpreg.store.slots import (
    SLOTS,
    Redirection,
    read_own_line,
    read_redirection,
    read_slots,
    slot_of,
    tag_for_slot,
)


def test_a_key_is_in_the_slot_that_the_server_says() -> None:
    keys = [b"", b"a", b"{a}b", b"{}a", b"a{b}{c}", b"{{a}}", b"a{", b"a}b{c}", "鍵".encode(), bytes(range(256))]
    with cluster(primaries=1, replicas=0) as made, Connection(made.primaries[0]) as connection:
        assert [slot_of(key) for key in keys] == [connection.call("CLUSTER", "KEYSLOT", key) for key in keys]


@given(st.binary(max_size=30).filter(lambda tag: b"}" not in tag and tag), st.binary(), st.binary())
def test_keys_with_the_same_tag_are_together(tag: bytes, before: bytes, after: bytes) -> None:
    before = before.replace(b"{", b"")
    assert slot_of(before + b"{" + tag + b"}" + after) == slot_of(tag)


@given(st.integers(0, SLOTS - 1))
def test_every_slot_has_a_tag(slot: int) -> None:
    assert slot_of(b"any{" + tag_for_slot(slot) + b"}thing") == slot


def test_who_serves_what() -> None:
    reply = [
        [0, 99, [b"127.0.0.1", 1, b"id", []], [b"127.0.0.1", 9, b"replica", []]],
        [100, 100, [b"", 2, b"id", []]],
        [200, 16383, [b"127.0.0.1", 1, b"id", []]],
        [150, 160, [b"?", 3, b"id", []]],
    ]
    slots = read_slots(reply, "asked")
    assert slots.primaries == {
        ("127.0.0.1", 1): (range(100), range(200, 16384)),
        ("asked", 2): (range(100, 101),),
        ("asked", 3): (range(150, 161),),
    }


def test_redirections() -> None:
    assert read_redirection("MOVED 3999 127.0.0.1:6381", "asked") == Redirection(3999, ("127.0.0.1", 6381))
    assert read_redirection("ASK 1 ::1:6381", "asked") == Redirection(1, ("::1", 6381))
    assert read_redirection("MOVED 1 :6381", "asked") == Redirection(1, ("asked", 6381))
    assert read_redirection("MOVED 1 ?:0", "asked") == Redirection(1, None)


def test_what_a_server_says_of_itself() -> None:
    text = (
        "aa 127.0.0.1:1@2 master - 0 0 1 connected 5-7\n"
        "bb 127.0.0.1:3@4 myself,master - 0 0 2 connected 0-2 9 [3-<-aa] [1->-aa]\n"
    )
    assert read_own_line(text) == ({0, 1, 2, 9}, {3})
    assert read_own_line("bb 127.0.0.1:3@4 myself,slave aa 0 0 2 connected") == (set(), set())
