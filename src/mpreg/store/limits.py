"""How much a store holds and how long it waits; every figure can be configured."""

from __future__ import annotations

import msgspec


class StoreLimits(msgspec.Struct, frozen=True, kw_only=True):
    pending_commands_max: int = 100_000
    """Commands of one link that wait for their reply; past it `send` refuses with STORE_BUSY, `command` waits."""
    unsent_bytes_max: int = 64 * 1024 * 1024
    """Bytes of commands that the operating system has not taken; past it as above."""
    connect_timeout_s: float = 5.0
    """From dialling to a server that is ready; also how long a server may be LOADING when a store is opened."""
    down_wait_s: float = 5.0
    """A command given while the link is down waits so long for the link, then fails with STORE_UNAVAILABLE."""
    beat_s: float = 10.0
    """A link that owes replies and hears nothing for one to two beats is broken. An idle link is pinged every beat.
    So one command (a script, say) may keep the server busy for at most one beat."""
    backoff_min_s: float = 0.05
    backoff_max_s: float = 2.0
    """The pause before the next attempt to connect doubles from the first to the second, each with full jitter."""
    redirects_max: int = 16
    """How often one command follows MOVED or ASK."""
    redirect_pause_s: float = 0.05
    """The pause after TRYAGAIN or CLUSTERDOWN; it doubles, up to 1 s, and `down_wait_s` ends it."""
    topology_s: float = 5.0
    """How often a cluster is asked who serves what while nothing seems to have changed."""
    subscription_messages_max: int = 10_000
    """Messages a subscription holds for a reader who is behind; then the oldest goes and the reader sees a gap."""
    channels_max: int = 50_000
    """Channels and patterns that one store subscribes at one server; past it `subscribe` refuses with STORE_BUSY."""
    probe_timeout_s: float = 0.5
    """How long the keyspace event of a probe key may take; without it, the server is taken to send none."""
