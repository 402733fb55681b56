"""The figures of a cluster, as presets (R-G5); they follow those that memberlist has found good.

Lower intervals find deaths sooner, cost messages, and forgive less. What is derived from them and from the size of the
cluster is in `timing`.
"""

from __future__ import annotations

from typing import Final

import msgspec


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds."""

    probe_interval_s: float = 1.0
    """One member is probed this often, so a member is probed by someone about this often, however many there are."""
    probe_timeout_s: float = 0.5
    """A probe that is not answered by then is tried through others."""
    indirect_probes: int = 3
    """Through how many others."""
    suspicion_mult: int = 4
    """A suspect has at least this many probe intervals, times log10 of the members, to show that it lives."""
    suspicion_max_mult: int = 6
    """And at most so many times longer while nobody else suspects it."""
    awareness_max: int = 8
    """Up to how many times slower a node judges others when it is itself unwell (Lifeguard)."""
    gossip_interval_s: float = 0.2
    gossip_nodes: int = 3
    """Each interval, what is new is told to so many members …"""
    retransmit_mult: int = 4
    """… each piece of news this many times log10 of the members."""
    anti_entropy_interval_s: float = 30.0
    """Each node compares its state with another one's this often."""
    heartbeat_interval_s: float = 5.0
    """Each node tells one member how it is doing this often, besides in every acknowledgement."""
    redial_s: float = 1.0
    """A link that is missing is dialled again after this, then after twice as long …"""
    redial_max_s: float = 30.0
    """… up to this."""
    dead_forget_s: float = 3600.0
    """How long the dead and those that left are remembered, and dialled in case they live (the dead only)."""
    tombstone_s: float = 3600.0
    """How long a withdrawn key is remembered, unless everyone saw it go (R-G3)."""
    vote_timeout_s: float = 5.0
    """A proposal that has no majority by then has expired."""
    message_lifetime_s: float = 30.0
    clock_skew_max_s: float = 600.0
    """How far the clocks of two nodes may differ before their messages seem to be expired, or from the future."""
    gossip_bytes_max: int = 1200
    """What news in one message take at most, so that it fits a packet."""
    seen_ids_max: int = 4096
    """So many ids of messages are remembered, to drop the same one when it comes again."""


LAN: Final = ClusterSettings()
WAN: Final = ClusterSettings(
    probe_interval_s=5.0,
    probe_timeout_s=3.0,
    suspicion_mult=6,
    gossip_interval_s=0.5,
    gossip_nodes=4,
    anti_entropy_interval_s=60.0,
    heartbeat_interval_s=15.0,
    redial_s=3.0,
    redial_max_s=60.0,
    vote_timeout_s=20.0,
    message_lifetime_s=60.0,
)
LOCAL: Final = ClusterSettings(
    probe_timeout_s=0.2,
    indirect_probes=1,
    suspicion_mult=3,
    gossip_interval_s=0.1,
    retransmit_mult=2,
    anti_entropy_interval_s=15.0,
    redial_s=0.2,
    redial_max_s=5.0,
    vote_timeout_s=2.0,
)
PRESETS: Final = {"lan": LAN, "wan": WAN, "local": LOCAL}
