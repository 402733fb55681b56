"""Assembles one process: functions, services, listeners and the store."""

from mpreg.node.caching import Cached
from mpreg.node.node import Node
from mpreg.node.settings import Settings
from mpreg.rpc import RpcLimits
from mpreg.wire.limits import Limits

__all__ = ["Cached", "Limits", "Node", "RpcLimits", "Settings"]
