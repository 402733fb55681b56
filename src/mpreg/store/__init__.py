"""Valkey and Redis: the one place where state outlives a process.

    store = await connect("valkey://127.0.0.1/0")      # unix://, valkeys://, valkey+sentinel://, valkey+cluster://
    async with Embedded("mpreg-data") as server:       # or a server of our own, which lives as long as we do
        store = await connect(server.url)

`Store` has all verbs. What a call that fails says about whether it has run: server_link.py. What a subscription
promises: subscription.py. What an embedded server keeps, and who owns it: embedded_files.py.
"""

from __future__ import annotations

from mpreg.store.dedicated import Dedicated
from mpreg.store.dial import Server
from mpreg.store.embedded import Embedded
from mpreg.store.embedded_files import DATA_DIR
from mpreg.store.key_events import KeyEvent, KeyEvents
from mpreg.store.limits import StoreLimits
from mpreg.store.replies import StoreReplyError
from mpreg.store.script import Script
from mpreg.store.server_link import ServerLink
from mpreg.store.store import Store, connect
from mpreg.store.subscription import Gap, Message, Subscription
from mpreg.store.url import StoreUrl

__all__ = [
    "DATA_DIR",
    "Dedicated",
    "Embedded",
    "Gap",
    "KeyEvent",
    "KeyEvents",
    "Message",
    "Script",
    "Server",
    "ServerLink",
    "Store",
    "StoreLimits",
    "StoreReplyError",
    "StoreUrl",
    "Subscription",
    "connect",
]
