"""Comparing whole states, two nodes at a time: what news alone has missed is found here, so it is not optional (R-G2).

`digest`: is yours the same as mine? If not, `buckets`: mine in parts; then `items`: my versions in the parts that
differ; then `state`: what you lack, and what I want; then `state`: what you wanted. It costs one small message when
nothing differs, and else what differs, not what there is. Each step stands by itself: a lost one ends the comparison
and the next one begins anew.
"""

from __future__ import annotations

from typing import Final

import msgspec

from mpreg.cluster import timing
from mpreg.cluster.core import Core
from mpreg.cluster.digests import PARTS, part_of
from mpreg.cluster.membership import Membership
from mpreg.cluster.record import Record
from mpreg.cluster.record import from_update as from_member_update
from mpreg.cluster.record import to_update as member_update
from mpreg.cluster.shared_state import Entry
from mpreg.cluster.shared_state import to_update as state_update
from mpreg.cluster.state_keys import StateKeys
from mpreg.wire.gossip import AntiEntropy, MembershipUpdate, StateUpdate, Updates

ITEMS_MAX: Final = 2000
"""Versions in one message."""
STATE_BYTES_MAX: Final = 256_000
"""What is sent of members and keys in one message."""
FOLLOW_UPS_MAX: Final = 256
"""Comparisons that go on because one message was not enough."""
CATCH_UP_S: Final = 1.0
"""After a link to someone who was gone, a comparison begins within this time."""

_size = msgspec.msgpack.Encoder().encode


class AntiEntropyRounds:
    def __init__(self, core: Core, membership: Membership, keys: StateKeys) -> None:
        self._core = core
        self._membership = membership
        self._keys = keys
        self._next: dict[str, None] = {}
        """Nodes to compare with before random ones."""
        self._agreed: dict[str, float] = {}
        """When the states of this node and that one were last the same."""
        self._follow_ups = 0

    def next_round(self) -> None:
        core = self._core
        interval = timing.anti_entropy_s(core.settings, core.nodes)
        self._follow_ups = 0
        wanted = next((node_id for node_id in self._next if node_id in core.reach), None)
        self._next.clear()
        core.timers.set(("anti_entropy", ""), core.now + interval * (0.75 + core.random.random() / 2))
        for node_id in [wanted] if wanted is not None else core.draw(1):
            self._ask(node_id)

    def soon(self, node_id: str, *, at_once: bool) -> None:
        core = self._core
        if at_once:
            self._ask(node_id)
            return
        if len(self._next) < PARTS:
            self._next[node_id] = None
        core.timers.set_earlier(("anti_entropy", ""), core.now + CATCH_UP_S * core.random.random())

    def heard(self, message: AntiEntropy, from_node: str) -> None:
        if from_node not in self._core.links:
            return
        if message.step == "digest":
            self._digest(message, from_node)
        elif message.step == "buckets":
            self._buckets(message, from_node)
        elif message.step == "items":
            self._items(message, from_node)
        else:
            self._state(message, from_node)

    def _ask(self, node_id: str) -> None:
        self._send(node_id, AntiEntropy(step="digest", digest=self._core.digest.total))

    def _digest(self, message: AntiEntropy, from_node: str) -> None:
        core = self._core
        if message.digest != core.digest.total:
            self._send(from_node, AntiEntropy(step="buckets", buckets=tuple(core.digest.parts)))
            return
        self._agreed[from_node] = core.wall
        live = [node_id for node_id in core.members.live if node_id != core.me.node_id]
        self._agreed = {node_id: self._agreed[node_id] for node_id in live if node_id in self._agreed}
        if len(self._agreed) == len(live) == len(core.members):
            self._keys.forget_tombstones(min(self._agreed.values()) - core.settings.clock_skew_max_s)

    def _buckets(self, message: AntiEntropy, from_node: str) -> None:
        core = self._core
        if len(message.buckets) != PARTS:
            core.intake.drop("payload")
            return
        differ = [part for part, mine in enumerate(core.digest.parts) if mine != message.buckets[part]]
        if not differ:
            return
        core.random.shuffle(differ)  # when one message can't take them all, the next comparison takes others
        members, keys = self._mine(frozenset(differ))
        parts: list[int] = []
        count = 0
        for part in differ:
            count += len(members.get(part, ())) + len(keys.get(part, ()))
            if parts and count > ITEMS_MAX:
                break
            parts.append(part)
        self._send(
            from_node,
            AntiEntropy(
                step="items",
                parts=tuple(parts),
                member_versions={
                    each.node.node_id: (each.node.incarnation, each.node.run_id)
                    for part in parts
                    for each in members.get(part, ())
                },
                key_versions={
                    each.key: (each.version, core.state.hash_of(each.key))
                    for part in parts
                    for each in keys.get(part, ())
                },
                more=len(parts) < len(differ),
            ),
        )

    def _items(self, message: AntiEntropy, from_node: str) -> None:
        """The other one has told its versions in some parts: send what it lacks, ask for what this node lacks."""
        core = self._core
        if len(message.parts) > PARTS or len(message.member_versions) + len(message.key_versions) > 2 * ITEMS_MAX:
            core.intake.drop("too_large")
            return
        members, keys = self._mine(frozenset(message.parts))
        telling: list[MembershipUpdate | StateUpdate] = []
        want_members: list[str] = []
        want_keys: list[str] = []
        for node_id, (incarnation, run_id) in message.member_versions.items():
            record = self._record(node_id)
            if record is None:
                want_members.append(node_id)
                continue
            known = (record.node.incarnation, record.node.run_id)
            if known != (incarnation, run_id) or not record.is_live:
                telling.append(member_update(record))
            if known != (incarnation, run_id) and incarnation >= known[0]:
                want_members.append(node_id)
        for found in members.values():
            telling.extend(member_update(each) for each in found if each.node.node_id not in message.member_versions)
        for key, (version, hash_) in message.key_versions.items():
            entry = core.state.get(key)
            if entry is None or version > entry.version:
                want_keys.append(key)
                continue
            if entry.removed or core.state.hash_of(key) != hash_:
                telling.append(state_update(entry))
                if version == entry.version:
                    want_keys.append(key)
        for entries in keys.values():
            telling.extend(state_update(each) for each in entries if each.key not in message.key_versions)
        self._tell(from_node, telling, tuple(want_members), tuple(want_keys), more=message.more)

    def _state(self, message: AntiEntropy, from_node: str) -> None:
        core = self._core
        before = core.digest.total
        for member in message.updates.members:
            self._membership.hear(member, from_node)
        for update in message.updates.state:
            self._keys.hear(update, from_node)
        telling = self._corrections(message.updates)
        for node_id in message.want_members[: 2 * ITEMS_MAX]:
            record = self._record(node_id)
            if record is not None:
                telling.append(member_update(record))
        for key in message.want_keys[: 2 * ITEMS_MAX]:
            entry = core.state.get(key)
            if entry is not None:
                telling.append(state_update(entry))
        if telling:
            self._tell(from_node, telling, (), (), more=message.more)
        elif message.more and core.digest.total != before and self._follow_ups < FOLLOW_UPS_MAX:
            self._follow_ups += 1
            self._ask(from_node)

    def _corrections(self, updates: Updates) -> list[MembershipUpdate | StateUpdate]:
        """What the other one has told although this node knows better: of the dead and of withdrawn keys, which are
        not among the versions that it was shown."""
        core = self._core
        telling: list[MembershipUpdate | StateUpdate] = []
        for member in updates.members:
            record = core.members.get(member.node.node_id)
            if record is not None and record.rank > from_member_update(member).rank:
                telling.append(member_update(record))
        for update in updates.state:
            entry = core.state.get(update.key)
            if entry is not None and entry.version > update.version:
                telling.append(state_update(entry))
        return telling

    def _tell(
        self,
        node_id: str,
        telling: list[MembershipUpdate | StateUpdate],
        want_members: tuple[str, ...],
        want_keys: tuple[str, ...],
        *,
        more: bool,
    ) -> None:
        if not (telling or want_members or want_keys):
            return
        members: list[MembershipUpdate] = []
        state: list[StateUpdate] = []
        left = STATE_BYTES_MAX
        for update in telling:
            left -= len(_size(update))
            if left < 0 and (members or state):
                more = True
                break
            if isinstance(update, MembershipUpdate):
                members.append(update)
            else:
                state.append(update)
        self._send(
            node_id,
            AntiEntropy(
                step="state",
                updates=Updates(members=tuple(members), state=tuple(state)),
                want_members=want_members,
                want_keys=want_keys,
                more=more,
            ),
        )

    def _record(self, node_id: str) -> Record | None:
        core = self._core
        return core.my_record() if node_id == core.me.node_id else core.members.get(node_id)

    def _mine(self, parts: frozenset[int]) -> tuple[dict[int, list[Record]], dict[int, list[Entry]]]:
        core = self._core
        members: dict[int, list[Record]] = {}
        keys: dict[int, list[Entry]] = {}
        for record in core.members.in_parts(parts):
            members.setdefault(part_of(record.node.node_id), []).append(record)
        if part_of(core.me.node_id) in parts:
            members.setdefault(part_of(core.me.node_id), []).append(core.my_record())
        for part, entry in core.state.in_parts(parts):
            keys.setdefault(part, []).append(entry)
        return members, keys

    def _send(self, node_id: str, message: AntiEntropy) -> None:
        self._core.send(node_id, "anti_entropy", message)
