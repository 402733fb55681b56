"""Connections that are told which keys change, so that what they hold themselves stays honest.

What changes in one turn of the loop is one message a connection. A connection that does not keep up is told that
something is lost, once, instead of everything that it missed.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from mpreg.cache.coherence import Update, to_change
from mpreg.cache.key import check_namespace, invalid
from mpreg.errors import MpregError, ResourceError
from mpreg.transport.session import Session
from mpreg.wire.cache import CacheChange, CacheChanged
from mpreg.wire.encoding import Encoding

NAMESPACES_MAX: Final = 1_000
CHANGES_MAX: Final = 10_000
"""Of one turn; past it everything counts as lost."""
WAITING_BYTES_MAX: Final = 1_000_000
"""On the connection, before it counts as one that does not keep up."""


class Watcher(msgspec.Struct):
    encoding: Encoding
    namespaces: frozenset[str]
    lost: bool = False


class Watching:
    def __init__(self) -> None:
        self._watchers: dict[Session, Watcher] = {}
        self._changes: dict[tuple[str, str, str], CacheChange] = {}
        self._lost = False
        self._soon: asyncio.Handle | None = None

    def __len__(self) -> int:
        return len(self._watchers)

    def set(self, session: Session, encoding: Encoding, namespaces: tuple[str, ...], watchers_max: int) -> None:
        if len(namespaces) > NAMESPACES_MAX:
            raise invalid("$.namespaces", f"at most {NAMESPACES_MAX}", limit=NAMESPACES_MAX)
        for at, namespace in enumerate(namespaces):
            check_namespace(namespace, f"$.namespaces[{at}]")
        if not namespaces:
            self._watchers.pop(session, None)
            return
        if session not in self._watchers and len(self._watchers) >= watchers_max:
            raise ResourceError("RESOURCE_EXHAUSTED", f"{watchers_max} connections watch, which is the limit")
        self._watchers[session] = Watcher(encoding, frozenset(namespaces))

    def forget(self, session: Session) -> None:
        self._watchers.pop(session, None)

    def tell(self, update: Update) -> None:
        if not self._watchers:
            return
        if not update.key or len(self._changes) >= CHANGES_MAX:
            self._lost = True  # by a pattern: which keys nobody has counted
        else:
            change = to_change(update)
            self._changes[change.namespace, change.identifier, change.key_version] = change
        self._later()

    def tell_lost(self) -> None:
        if self._watchers:
            self._lost = True
            self._later()

    def _later(self) -> None:
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        changes, lost = list(self._changes.values()), self._lost
        self._changes.clear()
        self._lost, self._soon = False, None
        for session, watcher in list(self._watchers.items()):
            wanted = tuple(change for change in changes if change.namespace in watcher.namespaces)
            if not wanted and not lost and not watcher.lost:
                continue
            if session.link.waiting > WAITING_BYTES_MAX:
                watcher.lost = True
                self._soon = (
                    asyncio.get_running_loop().call_later(0.1, self._flush) if self._soon is None else self._soon
                )
                continue
            told = CacheChanged(changes=wanted, lost=lost or watcher.lost)
            watcher.lost = False
            try:
                session.send(told, watcher.encoding)
            except MpregError:
                watcher.lost = True
