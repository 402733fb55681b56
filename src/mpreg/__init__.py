"""MPREG: call functions wherever they live, publish, queue, cache, lock and match.

The layers, from the bottom: `wire` defines every message; `transport` moves frames; `store` and `keyspace` keep what
outlives a process; `rpc` and its sisters decide; `node` and `client` assemble them; `cli` is the command line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpreg.client import Client, RetryPolicy, command, connect
    from mpreg.errors import MpregError
    from mpreg.node import Node, Settings
    from mpreg.wire.received import Message

__version__ = "0.1.0"

__all__ = ["Client", "Message", "MpregError", "Node", "RetryPolicy", "Settings", "command", "connect"]

_HOME = {
    "Client": "mpreg.client",
    "Message": "mpreg.wire.received",
    "MpregError": "mpreg.errors",
    "Node": "mpreg.node",
    "RetryPolicy": "mpreg.client",
    "Settings": "mpreg.node",
    "command": "mpreg.client",
    "connect": "mpreg.client",
}


def __getattr__(name: str) -> Any:
    """The front door opens when someone comes: a command line that needs no node does not import one."""
    if name not in _HOME:
        raise AttributeError(f"module 'mpreg' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
