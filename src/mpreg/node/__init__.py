"""Assembles one process: functions, services, listeners and the store."""

from mpreg.node.caching import Cached
from mpreg.node.node import Node
from mpreg.node.settings import Settings

__all__ = ["Cached", "Node", "Settings"]
