"""Queues: the Lua that owns their state, and how a node carries messages in and out of it."""

from mpreg.queues.limits import QueueLimits
from mpreg.queues.service import QueueService

__all__ = ["QueueLimits", "QueueService"]
