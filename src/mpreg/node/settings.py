"""What can be set of a node. Every field is also a TOML key, an environment variable and, where useful, an option."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from mpreg.cache import CacheSettings
from mpreg.pubsub import PubSubLimits
from mpreg.queues import QueueLimits
from mpreg.rpc import RpcLimits
from mpreg.store import DATA_DIR
from mpreg.wire.limits import CLIENT, Limits

Port = Annotated[int, Meta(ge=0, le=65535)] | Literal["off"]
"""0 takes a free port; "off" turns the listener off."""


def listed(value: tuple[str, ...] | str) -> tuple[str, ...]:
    """A list, or what the environment and the command line have for one: words with spaces or commas between."""
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The defaults are for one machine: loopback only, an embedded store, the ports of R-W8."""

    name: Annotated[str, Meta(max_length=128)] = ""
    """How the node calls itself; made from host name and process id if empty."""
    host: str = "127.0.0.1"
    """The address to listen on; this one only this machine can reach."""
    ws: Port = 6666
    """Port of the WebSocket listener; 0 takes a free one, `off` turns it off."""
    wss: Port = "off"
    """… with TLS; 6667 is the usual one."""
    tcp: Port = 6668
    """Port of the TCP listener."""
    tcps: Port = "off"
    """… with TLS; 6669 is the usual one."""
    origins: tuple[str, ...] | str = ()
    """Web pages that may connect beside those of this machine, as `https://example.org`, with spaces between, or
    `*` for all. Programs that are no browsers are not asked."""
    tls_cert: str | None = None
    """PEM file: the certificate, and its chain."""
    tls_key: str | None = None
    """PEM file: its key, without a passphrase."""
    tls_ca: str | None = None
    """PEM file: who issues the certificates of clients."""
    tls_require_client_cert: bool = False
    """Nobody gets in who shows no certificate issued by `tls_ca`."""
    store: str = "embedded:"
    """URL of a Valkey or Redis server, `embedded:` for one of the node's own, or `off`. Nodes of one cluster share
    theirs; `shared:` asks the nodes in `join` for one that was started with `share_store`."""
    data_dir: str = DATA_DIR
    """Where the embedded store keeps its data."""
    durability: Literal["memory", "everysec", "always"] = "everysec"
    """What the embedded store may lose in a crash: everything, the last second, nothing acknowledged."""
    cluster: Annotated[str, Meta(max_length=128)] = ""
    """The id of the cluster that this node is part of; none if empty."""
    join: tuple[str, ...] | str = ()
    """Where nodes of the cluster may be found, as a list or with spaces between: URLs, `file:PATH`, `dns:NAME:PORT`,
    `srv:NAME`."""
    cluster_secret_file: str | None = None
    """What the nodes of the cluster share, 16 bytes or more. Needed unless all are on this machine, or show
    certificates."""
    advertise: tuple[str, ...] | str = ()
    """URLs at which the other nodes reach this one; its own listeners if empty."""
    cluster_port: Port = "off"
    """A TCP listener for other nodes only. They may also use the listeners for clients."""
    share_store: bool = False
    """Tell other nodes of the cluster on this machine where the embedded store is, for those with `store` at
    `shared:`. For development: it ends with this node."""
    reuse_port: bool = False
    """Other processes listen at the same ports; the kernel spreads connections over them. `mpreg serve --workers`
    sets it."""
    membership: Literal["lan", "wan", "local"] = "lan"
    """How fast a death is noticed, and how much talk it costs (R-G5)."""
    muf: bool = False
    """Be a MUF unit as well: requests as plain keys of the store call functions, clients can ask units. Only for a node
    that `mpreg serve` runs; a program hands `Bridge` to `node.beside`."""
    muf_unit: Annotated[str, Meta(min_length=1, max_length=512)] = "MPREG"
    """How that unit is called."""
    muf_topics: bool = False
    """What units say to each other is published too, as `muf.<status>.<unit>`. Turn it on at one node of a cluster."""
    debug: bool = False
    """Errors carry the traceback of the function that raised. Not for a node that strangers can reach."""
    log: Literal["text", "json"] = "text"
    """One readable line an event, or one JSON object."""
    grace_s: Annotated[float, Meta(ge=0, le=3600)] = 10.0
    """How long running requests may take to finish when the node stops."""
    connections_max: Annotated[int, Meta(ge=1)] = 10_000
    """The next one is told `RESOURCE_EXHAUSTED`, and closed."""
    limits: Limits = CLIENT
    rpc: RpcLimits = RpcLimits()
    pubsub: PubSubLimits = PubSubLimits()
    queues: QueueLimits = QueueLimits()
    cache: CacheSettings = CacheSettings()
