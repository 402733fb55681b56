"""The table of all nodes that this one knows, itself not among them. It takes a saying if it counts for more than what
is known (`record`), keeps the digest of the living, and remembers the dead for a while."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from mpreg.cluster.digests import Digest, item_hash, part_of
from mpreg.cluster.record import DEAD, Record
from mpreg.cluster.roster import Roster

MEMBERS_MAX: Final = 4096
"""Known nodes, dead ones included. When there are more, the dead that were declared first are forgotten first; new
ones are refused when all of them live."""


class Members:
    def __init__(self, digest: Digest) -> None:
        self._digest = digest
        self._records: dict[str, Record] = {}
        self._hashes: dict[str, int] = {}
        self.live = Roster()
        """Alive and suspect."""
        self._gone: dict[str, None] = {}
        """Dead and left, in the order in which this node learned of it."""

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._records

    def __iter__(self) -> Iterator[Record]:
        return iter(list(self._records.values()))

    def get(self, node_id: str) -> Record | None:
        return self._records.get(node_id)

    def counts_for_more(self, record: Record) -> bool:
        known = self._records.get(record.node.node_id)
        return known is None or record.rank > known.rank

    def has_room(self, node_id: str) -> bool:
        return node_id in self._records or len(self._records) < MEMBERS_MAX or bool(self._gone)

    def set(self, record: Record) -> str | None:
        """Returns the node that was forgotten to make room, if any."""
        node_id = record.node.node_id
        forgotten = None
        if node_id not in self._records and len(self._records) >= MEMBERS_MAX:
            forgotten = next(iter(self._gone))
            self.forget(forgotten)
        self._unhash(node_id)
        self._records[node_id] = record
        if record.is_live:
            self.live.add(node_id)
            self._gone.pop(node_id, None)
            value = self._hashes[node_id] = version_hash(record)
            self._digest.add(part_of(node_id), value)
        else:
            self.live.discard(node_id)
            self._gone[node_id] = None
        return forgotten

    def forget(self, node_id: str) -> None:
        self._unhash(node_id)
        self._records.pop(node_id, None)
        self.live.discard(node_id)
        self._gone.pop(node_id, None)

    def gone_before(self, at: float) -> list[str]:
        return [node_id for node_id in self._gone if self._records[node_id].at < at]

    def dead(self) -> list[str]:
        return [node_id for node_id in self._gone if self._records[node_id].state == DEAD]

    def in_parts(self, parts: Collection[int]) -> list[Record]:
        """The living ones in these parts of the digest."""
        return [self._records[node_id] for node_id in self._hashes if part_of(node_id) in parts]

    def _unhash(self, node_id: str) -> None:
        value = self._hashes.pop(node_id, None)
        if value is not None:
            self._digest.remove(part_of(node_id), value)


def version_hash(record: Record) -> int:
    """A suspicion passes by itself, so it is no difference worth a comparison."""
    return item_hash("member", record.node.node_id, record.node.incarnation, record.node.run_id)
