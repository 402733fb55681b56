"""What a link accepts and holds. Checked before memory is taken; every figure can be configured."""

from __future__ import annotations

import msgspec

MB = 1_000_000


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """R-W4. The defaults are those of a client link; `INTERNAL` those between nodes."""

    frame_bytes_max: int = 20 * MB
    """One WebSocket frame, or one TCP frame."""
    message_bytes_max: int = 100 * MB
    """One message streamed in several frames."""
    waiting_bytes_max: int = 100 * MB
    """Bytes accepted for writing that the peer has not taken yet; past it the link is closed."""
    chunk_bytes: int = 256 * 1024
    """A message longer than `frame_bytes_max` leaves in chunks of this size."""
    batch_messages: int = 48
    """So many messages of one turn of the event loop leave before it ends: the peer works on them while this side makes
    the next. Fewer use a second core better, and cost both sides more system calls."""
    ping_interval_s: float = 20.0
    """R-W5: an idle link is pinged this often, and closed after two pings without any answer."""
    handshake_timeout_s: float = 10.0
    """A peer that connects and does not finish its handshake within this time is disconnected."""


CLIENT = Limits()
INTERNAL = Limits(frame_bytes_max=5 * MB, message_bytes_max=20 * MB, waiting_bytes_max=20 * MB, batch_messages=32)
