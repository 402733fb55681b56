"""The breaker: legal transitions, n probes at most, and nothing old decides about the present."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpreg.transport.breaker import TRANSITIONS, Breaker, BreakerPolicy, State

POLICY = BreakerPolicy(failures_to_open=3, open_s=5.0, probes_max=2, successes_to_close=2)


def opened(policy: BreakerPolicy = POLICY) -> Breaker:
    breaker = Breaker(policy)
    for _ in range(policy.failures_to_open):
        ticket = breaker.admit(0.0)
        assert ticket is not None
        breaker.failed(ticket, 0.0)
    assert breaker.state is State.OPEN
    return breaker


def test_only_failures_in_a_row_open_it() -> None:
    breaker = Breaker(POLICY)
    for _ in range(10):
        for outcome in (breaker.failed, breaker.failed, breaker.succeeded):
            ticket = breaker.admit(0.0)
            assert ticket is not None
            outcome(ticket, 0.0)
    assert breaker.state is State.CLOSED


def test_open_admits_nothing_until_the_pause_is_over() -> None:
    breaker = opened()
    assert breaker.admit(4.999) is None
    assert breaker.retry_at() == 5.0
    assert breaker.refusal(1.0, "tcp://a").details["retry_after_s"] == 4.0
    assert breaker.refusal(1.0, "tcp://a").code == "TRANSPORT_CIRCUIT_OPEN"
    assert breaker.admit(5.0) is not None
    assert breaker.state is State.HALF_OPEN


def test_half_open_admits_n_at_a_time() -> None:
    breaker = opened()
    first, second = breaker.admit(5.0), breaker.admit(5.0)
    assert first is not None
    assert second is not None
    assert breaker.admit(5.0) is None
    breaker.abandoned(second)
    assert breaker.admit(5.0) is not None
    assert breaker.admit(5.0) is None


def test_enough_probes_that_succeed_close_it_and_one_that_fails_opens_it() -> None:
    breaker = opened()
    for _ in range(2):
        ticket = breaker.admit(5.0)
        assert ticket is not None
        assert breaker.state is State.HALF_OPEN
        breaker.succeeded(ticket, 5.0)
    assert breaker.state is State.CLOSED
    breaker = opened()
    ticket = breaker.admit(5.0)
    assert ticket is not None
    breaker.failed(ticket, 6.0)
    assert breaker.state is State.OPEN
    assert breaker.admit(10.9) is None
    assert breaker.admit(11.0) is not None


def test_probes_that_never_end_do_not_keep_it_half_open_for_ever() -> None:
    breaker = opened()
    lost = [breaker.admit(5.0), breaker.admit(5.0)]
    assert breaker.admit(9.9) is None
    fresh = breaker.admit(10.0)
    assert fresh is not None
    for ticket in lost:
        assert ticket is not None
        breaker.failed(ticket, 10.0)
    assert breaker.state is State.HALF_OPEN


def test_a_call_from_before_says_nothing_about_the_present() -> None:
    breaker = Breaker(POLICY)
    old = [breaker.admit(0.0) for _ in range(10)]
    for ticket in old[:3]:
        assert ticket is not None
        breaker.failed(ticket, 0.0)
    probe = breaker.admit(5.0)
    assert probe is not None
    for ticket in old[3:]:
        assert ticket is not None
        breaker.failed(ticket, 5.0)
        breaker.succeeded(ticket, 5.0)
    assert breaker.state is State.HALF_OPEN


@pytest.mark.parametrize("field", ["failures_to_open", "open_s", "probes_max", "successes_to_close"])
def test_a_policy_without_sense_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        BreakerPolicy(**{field: 0})


steps = st.lists(st.tuples(st.sampled_from(["admit", "succeed", "fail", "abandon", "wait"]), st.integers(0, 50)))


@given(
    steps,
    st.builds(
        BreakerPolicy,
        failures_to_open=st.integers(1, 4),
        open_s=st.floats(0.5, 9.5),
        probes_max=st.integers(1, 4),
        successes_to_close=st.integers(1, 4),
    ),
)
def test_whatever_happens_transitions_are_legal_and_probes_bounded(
    steps: list[tuple[str, int]], policy: BreakerPolicy
) -> None:
    breaker = Breaker(policy)
    out: list[tuple[int, State]] = []
    now, state, opened_at = 0.0, State.CLOSED, 0.0
    for what, choice in steps:
        if what == "wait":
            now += choice / 10
        elif what == "admit":
            ticket = breaker.admit(now)
            if ticket is not None:
                assert state is not State.OPEN or now >= opened_at + policy.open_s
                assert breaker.state is not State.OPEN
                out.append((ticket, breaker.state))
            elif breaker.state is State.CLOSED:
                pytest.fail("a closed breaker admits everything")
        elif out:
            ticket, _ = out.pop(choice % len(out))
            if what == "succeed":
                breaker.succeeded(ticket, now)
            elif what == "fail":
                breaker.failed(ticket, now)
            else:
                breaker.abandoned(ticket)
        if breaker.state is not state:
            assert breaker.state in TRANSITIONS[state]
            state = breaker.state
            if state is State.OPEN:
                opened_at = now
                assert what == "fail"
        current = [ticket for ticket, admitted in out if admitted is State.HALF_OPEN and ticket == breaker._era]
        if state is State.HALF_OPEN:
            assert len(current) <= policy.probes_max
    # Whatever happened, a peer that works again is used again.
    for _ in range(2 * policy.successes_to_close + 2):
        now += policy.open_s
        ticket = breaker.admit(now)
        assert ticket is not None
        breaker.succeeded(ticket, now)
    assert breaker.state is State.CLOSED
