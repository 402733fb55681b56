"""Backup: every key that matches, with type, absolute expiry and payload, into one verified file.

It is no snapshot: each key is as it was when it was read, and keys that appear meanwhile may or may not be in it.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

import msgspec

from mpreg.keyspace.tools.backup_file import Sink
from mpreg.keyspace.tools.record_file import Header, Sealer, entry
from mpreg.keyspace.tools.record_read import Seen, pages
from mpreg.store import Store

Progress = Callable[[int], None]
"""Told how many keys are done by now."""


class BackedUp(msgspec.Struct, frozen=True):
    keys: int
    gone: int
    """Keys that vanished between being listed and being read."""
    payload_bytes: int


class Writing:
    """A backup being written to a sink. The header waits for the first key, whose payload tells the version."""

    def __init__(self, store: Store, sink: Sink, match: bytes, families: Sequence[str]) -> None:
        self._sink = sink
        self._sealer = Sealer()
        self._header = Header(
            server=f"{store.server.name} {store.server.version}",
            rdb_version=0,
            db=store.url.database,
            match=match.decode("utf-8", "backslashreplace"),
            families=list(families),
            started=utc_now(),
        )
        self._begun = False
        self.payload_bytes = 0

    @property
    def keys(self) -> int:
        return self._sealer.keys

    def add(self, found: Sequence[Seen]) -> None:
        lines = []
        for seen in found:
            record = entry(seen.key, seen.type, seen.expires_at_ms, seen.value)
            self._begin(record.rdb_version)
            lines.append(self._sealer.entry(record))
            self.payload_bytes += len(seen.value)
        self._sink.write(b"".join(lines))

    def end(self, gone: int) -> None:
        self._begin(0)
        self._sink.write(self._sealer.footer(gone, utc_now()))

    def _begin(self, rdb_version: int) -> None:
        if not self._begun:
            self._begun = True
            self._sink.write(self._sealer.header(msgspec.structs.replace(self._header, rdb_version=rdb_version)))


async def backup(
    store: Store,
    sink: Sink,
    match: bytes = b"*",
    *,
    accepts: Callable[[bytes], bool] | None = None,
    families: Sequence[str] = (),
    keys_per_s: float | None = None,
    progress: Progress = lambda done: None,
) -> BackedUp:
    """`accepts` narrows what `match` finds; `families` is only noted in the header."""
    writing = Writing(store, sink, match, families)
    gone = 0
    async for page in pages(store, match, accepts=accepts, keys_per_s=keys_per_s):
        writing.add(page.found)
        gone += page.gone
        progress(writing.keys)
    writing.end(gone)
    return BackedUp(writing.keys, gone, writing.payload_bytes)


def utc_now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
