"""Entries for tests of what a node holds."""

from __future__ import annotations

from typing import Any

from mpreg.cache.entry import Entry
from mpreg.cache.key import store_key


def entry(size: int = 1, **fields: Any) -> Entry:
    return Entry(**{"value": b"x" * size, "version": 1, "created_ms": 0, **fields})


def key(name: object, namespace: str = "n") -> bytes:
    return store_key(namespace, str(name))
