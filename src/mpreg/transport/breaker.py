"""Stops asking a peer that keeps failing. A pure machine; the clock is handed in.

    closed     calls pass; so many failures in a row open it
    open       nothing passes until a pause is over
    half-open  a few calls pass as probes; enough successes close it, one failure opens it again

A call that was admitted in one state and ends in another says nothing about the present: its result is ignored.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from mpreg.errors import TransportError


class State(enum.Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


TRANSITIONS: Final = {
    State.CLOSED: frozenset({State.OPEN}),
    State.OPEN: frozenset({State.HALF_OPEN}),
    State.HALF_OPEN: frozenset({State.OPEN, State.CLOSED, State.HALF_OPEN}),
}
"""Half-open to half-open: all probes are out for so long that they count as lost, and new ones are admitted."""


class BreakerPolicy(msgspec.Struct, frozen=True, kw_only=True):
    failures_to_open: int = 5
    """In a row."""
    open_s: float = 5.0
    probes_max: int = 1
    """Calls admitted at a time while half-open."""
    successes_to_close: int = 1

    def __post_init__(self) -> None:
        if min(self.failures_to_open, self.probes_max, self.successes_to_close) < 1 or self.open_s <= 0:
            raise ValueError(f"a breaker needs positive figures, not {self}")


class Breaker:
    """`admit` before a call; then exactly one of `succeeded`, `failed`, `abandoned` with what `admit` returned."""

    __slots__ = ("_era", "_failures", "_policy", "_probes", "_since", "_state", "_successes")

    def __init__(self, policy: BreakerPolicy | None = None) -> None:
        self._policy = policy or BreakerPolicy()
        self._state = State.CLOSED
        self._since = 0.0
        self._era = 0
        self._failures = 0
        self._probes = 0
        self._successes = 0

    @property
    def state(self) -> State:
        return self._state

    def retry_at(self) -> float:
        """When `admit` should be asked again, after it has refused."""
        return self._since + self._policy.open_s

    def admit(self, now: float) -> int | None:
        """A ticket for one call, or `None`."""
        if self._state is State.CLOSED:
            return self._era
        if now >= self.retry_at() and (self._state is State.OPEN or self._probes >= self._policy.probes_max):
            self._enter(State.HALF_OPEN, now)
        if self._state is State.HALF_OPEN and self._probes < self._policy.probes_max:
            self._probes += 1
            return self._era
        return None

    def succeeded(self, ticket: int, now: float) -> None:
        if ticket != self._era:
            return
        self._failures = 0
        if self._state is State.HALF_OPEN:
            self._probes -= 1
            self._successes += 1
            if self._successes >= self._policy.successes_to_close:
                self._enter(State.CLOSED, now)

    def failed(self, ticket: int, now: float) -> None:
        if ticket != self._era:
            return
        self._failures += 1
        if self._state is State.HALF_OPEN or self._failures >= self._policy.failures_to_open:
            self._enter(State.OPEN, now)

    def abandoned(self, ticket: int) -> None:
        """The caller gave up; that says nothing about the peer."""
        if ticket == self._era and self._state is State.HALF_OPEN:
            self._probes -= 1

    def refusal(self, now: float, peer: str) -> TransportError:
        """What a caller is told who was not admitted."""
        wait_s = max(0.0, self.retry_at() - now)
        return TransportError(
            "TRANSPORT_CIRCUIT_OPEN",
            f"{peer} failed {self._policy.failures_to_open} times in a row; it is tried again in {wait_s:.1f} s",
            url=peer,
            retry_after_s=round(wait_s, 3),
        )

    def _enter(self, state: State, now: float) -> None:
        assert state in TRANSITIONS[self._state]
        self._state = state
        self._since = now
        self._era += 1
        self._failures = self._probes = self._successes = 0
