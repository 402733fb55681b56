"""Trying again: the retry policy of the protocol, for calls that surely had no effect, or that may have it twice.

The timeout of a call covers all its attempts and the pauses between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import random
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from mpreg.errors import MpregError
from mpreg.transport import Backoff

T = TypeVar("T")

Milliseconds = Annotated[float, Meta(gt=0, le=3_600_000)]


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The n-th pause is up to `base_delay_ms` x `backoff_multiplier` ** n, never over `max_delay_ms`."""

    max_retries: Annotated[int, Meta(ge=0, le=1_000)] = 3
    """Attempts after the first one."""
    base_delay_ms: Milliseconds = 1_000
    """The first pause."""
    max_delay_ms: Milliseconds = 30_000
    """The longest one."""
    backoff_multiplier: Annotated[float, Meta(ge=1, le=100)] = 2.0
    """How much longer each pause is than the one before."""
    jitter: bool = True
    """Each pause is a random part of its length, so that many clients do not come back in step."""
    retryable_errors: tuple[str, ...] = ()
    """Codes to try again after. None: those that say of themselves that a repeat may help."""
    idempotent: bool = False
    """Try again too when the call may have run already: for programs whose calls may all run twice."""

    def __post_init__(self) -> None:
        if self.base_delay_ms > self.max_delay_ms:
            raise ValueError("base_delay_ms is at most max_delay_ms")

    def allows(self, error: MpregError) -> bool:
        """Is this worth another attempt, and harmless?"""
        wanted = error.code in self.retryable_errors if self.retryable_errors else error.retryable
        return wanted and (self.idempotent or error.state_changed is False)


async def with_retries(policy: RetryPolicy, timeout_s: float, attempt: Callable[[float], Awaitable[T]]) -> T:
    """What `attempt` returns, called with the seconds that are left. Raises the last error, which says in its details
    how often it was tried again."""
    time = asyncio.get_running_loop().time
    end = time() + timeout_s
    backoff = Backoff(policy.base_delay_ms / 1e3, policy.backoff_multiplier, policy.max_delay_ms / 1e3)
    left_s = timeout_s
    while True:
        try:
            return await attempt(left_s)
        except MpregError as error:
            retries = backoff.attempts
            pause_s = backoff.next_s(random() if policy.jitter else 1.0)
            left_s = end - time() - pause_s
            if retries >= policy.max_retries or left_s <= 0 or not policy.allows(error):
                if retries:
                    error.details["retry_count"] = retries
                raise
        await asyncio.sleep(pause_s)
