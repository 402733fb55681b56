"""The lease as the holder's own clock sees it: pure, so time is a number here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpreg.errors import StoreError
from mpreg.store.lock_keys import beside, lock_keys
from mpreg.store.lock_lease import Lease, margin_s

seconds = st.floats(min_value=0, max_value=1000, allow_nan=False)


def test_a_lease_ends_a_margin_before_the_ttl_counted_from_the_request() -> None:
    lease = Lease(10.0, asked_at=100.0)
    assert margin_s(10.0) == 1.0
    assert lease.valid(108.9)
    assert not lease.valid(109.0)


def test_a_renewal_is_due_after_a_third_of_the_ttl_and_only_one_at_a_time() -> None:
    lease = Lease(9.0, asked_at=0.0)
    assert lease.wake_at() == 3.0
    assert lease.step(2.9) == "nothing"
    assert lease.step(3.0) == "renew"
    assert lease.step(3.1) == "nothing"
    assert lease.wake_at() == lease.until
    lease.renewed(asked_at=3.0)
    assert lease.wake_at() == 6.0
    assert lease.valid(11.0)


def test_a_renewal_without_an_answer_is_repeated_soon_and_counts_for_nothing() -> None:
    lease = Lease(9.0, asked_at=0.0)
    assert lease.step(3.0) == "renew"
    lease.failed(4.0)
    assert lease.wake_at() == 4.75
    assert not lease.valid(8.1)
    assert lease.step(8.1) == "lost"


def test_a_lease_that_is_refused_is_lost_at_once() -> None:
    lease = Lease(9.0, asked_at=0.0)
    lease.step(3.0)
    lease.refused()
    assert not lease.valid(3.0)
    assert lease.step(3.0) == "lost"


def test_what_is_lost_stays_lost_even_if_a_late_answer_says_renewed() -> None:
    lease = Lease(9.0, asked_at=0.0)
    assert lease.step(3.0) == "renew"
    assert lease.step(50.0) == "lost"
    lease.renewed(asked_at=3.0)
    assert not lease.valid(3.0)


def test_a_lease_that_is_not_renewed_just_runs_out() -> None:
    lease = Lease(9.0, asked_at=0.0, renews=False)
    assert lease.wake_at() == lease.until
    assert lease.step(3.0) == "nothing"
    assert lease.step(8.1) == "lost"


@given(st.floats(min_value=0.1, max_value=86_400), st.lists(st.tuples(seconds, st.sampled_from("rfnx")), max_size=60))
def test_a_holder_never_believes_longer_than_the_store_grants(ttl_s: float, course: list[tuple[float, str]]) -> None:
    """The store is simulated at its quickest: it runs a request the moment it is sent."""
    now, granted_until = 0.0, ttl_s
    lease = Lease(ttl_s, asked_at=0.0)
    for pause, answer in course:
        now += pause * ttl_s / 1000
        assert not lease.valid(now) or now < granted_until
        due = lease.step(now)
        if due == "lost":
            assert not lease.valid(now)
            return
        if due == "renew":
            asked_at = now
            stands = now < granted_until
            if answer == "r" and stands:
                granted_until = now + ttl_s
                now += pause / 10
                lease.renewed(asked_at)
            elif answer == "n" and stands:  # renewed, but the answer got lost
                granted_until = now + ttl_s
                lease.failed(now)
            elif answer == "f":
                lease.failed(now)
            else:
                lease.refused()
        assert lease.lost or lease.wake_at() <= lease.until


@pytest.mark.parametrize(
    ("key", "sibling"),
    [
        (b"backup:daily", b"{backup:daily}:fence"),
        (b"poppo:lock:{12}", b"poppo:lock:{12}:fence"),
        (b"{a}b{c}", b"{a}b{c}:fence"),
        (b"a{b", b"{a{b}:fence"),
    ],
)
def test_what_stands_beside_a_lock_is_in_its_hash_slot(key: bytes, sibling: bytes) -> None:
    assert beside(key, b"fence") == sibling


@pytest.mark.parametrize("key", [b"a}b", b"a{}b"])
def test_a_key_that_no_other_can_stand_beside_is_refused(key: bytes) -> None:
    with pytest.raises(StoreError) as refused:
        lock_keys(key)
    assert refused.value.code == "STORE_INVALID_OPTION"


@pytest.mark.parametrize("name", ["", "x" * 1025])
def test_a_name_has_a_length(name: str) -> None:
    with pytest.raises(StoreError) as refused:
        lock_keys(name)
    assert refused.value.details == {"option": "name", "limit": 1024}


def test_a_fixed_value_implies_a_record_of_the_owner() -> None:
    assert lock_keys("a").owner is None
    assert lock_keys("a", visible="locked").owner == b"{a}:owner"
    assert lock_keys("a", owner_key="b").owner == b"b"
    with pytest.raises(StoreError):
        lock_keys("a", owner_key="a")
