"""How many files a process may have open: each connection is one. The usual soft limit, 1,024, is far below what the
system allows to whoever asks, so a node asks."""

from __future__ import annotations

import logging
import resource
from typing import Final

log = logging.getLogger(__name__)

FILES_BESIDE_CONNECTIONS: Final = 100
"""Descriptors that a node opens for itself: listeners, the store, logs, libraries."""


def needed_for(connections_max: int) -> int:
    return connections_max + FILES_BESIDE_CONNECTIONS


def allow_open_files(connections_max: int) -> int:
    """Raise the soft limit to what so many connections need, as far as the hard limit goes. Returns the new one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed_for(connections_max)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    reached = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (reached, hard))
    except (OSError, ValueError):  # macOS allows less than it says
        reached = soft
    if reached < wanted:
        log.warning("%d open files are allowed, connections_max = %d needs %d", reached, connections_max, wanted)
    return reached
