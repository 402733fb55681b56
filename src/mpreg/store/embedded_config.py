"""What an embedded server is told when it starts: durability classes by name, and the arguments they mean."""

from __future__ import annotations

from typing import Literal, get_args

from mpreg.errors import StoreError

Durability = Literal["memory", "everysec", "always"]

# What each class may lose. A node that is killed loses nothing in the durable ones: its server still stops in order.
# A server that is killed has given nearly everything to the kernel, which keeps it; but with `everysec` it may hold
# back up to two seconds of writes while an earlier flush takes its time.
MAY_LOSE: dict[str, str] = {
    "memory": "everything when the server stops, for whatever reason",
    "everysec": "up to about two seconds of writes when the server or its machine dies; nothing when the node does",
    "always": "nothing that was acknowledged, as far as the disk keeps what it has flushed",
}

# K: published as __keyspace@<db>__:<key>, as requests and replies in plain keys need. $: string commands; g: DEL,
# EXPIRE, RENAME; x: expired. The lists, sets, hashes and streams of queues and caches stay silent: each event costs
# the server about as much as a GET. Who watches those adds flags (`ensure_notifications`), and takes none away.
NOTIFY = "K$gx"


def check_durability(durability: str) -> Durability:
    for known in get_args(Durability):
        if durability == known:
            return known  # type: ignore[no-any-return]
    raise StoreError(
        "STORE_INVALID_OPTION",
        f"durability is {durability!r}; it must be one of {', '.join(get_args(Durability))}",
        option="durability",
    )


def server_arguments(
    directory: str, socket: str, log: str, durability: Durability, maxmemory_bytes: int | None = None
) -> list[str]:
    """The whole configuration; no file of it exists that could disagree."""
    options = {
        "port": "0",
        "unixsocket": socket,
        "unixsocketperm": "700",
        "dir": directory,
        "logfile": log,
        "daemonize": "no",
        "supervised": "no",
        # Durability is the append-only file alone; a snapshot beside it would only cost forks.
        "save": "",
        "appendonly": "no" if durability == "memory" else "yes",
        "appendfsync": "always" if durability == "always" else "everysec",
        # The tail of a write that a crash cut off was never acknowledged under `always`; it is dropped, and logged.
        "aof-load-truncated": "yes",
        # Whatever the platform keeps must never vanish to make room: a full store refuses writes instead.
        "maxmemory-policy": "noeviction",
        "maxmemory": str(maxmemory_bytes or 0),
        "notify-keyspace-events": NOTIFY,
        # SIGTERM comes when the node has died: flush the append-only file and go, without ever refusing.
        "shutdown-on-sigterm": "nosave now force",
        "shutdown-on-sigint": "nosave now force",
    }
    return [part for name, value in options.items() for part in (f"--{name}", *_words(name, value))]


def _words(name: str, value: str) -> list[str]:
    return value.split() if name.startswith("shutdown-on") else [value]
