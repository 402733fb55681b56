"""Keys of the shared state that belong to one node: `node/<node_id>/<what>`. Only that node writes them, and they are
shown only while it lives. Every other key is anybody's."""

from __future__ import annotations

from typing import Final

_PREFIX: Final = "node/"


def own_key(node_id: str, what: str) -> str:
    return f"{_PREFIX}{node_id}/{what}"


def owner_of(key: str) -> str | None:
    """The node that the key belongs to; None for anybody's."""
    if not key.startswith(_PREFIX):
        return None
    owner, slash, _ = key[len(_PREFIX) :].partition("/")
    return owner if slash else None
