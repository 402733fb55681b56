"""News that this node tells others: each piece a limited number of times, the least told first, the newest first among
those. A newer piece about the same thing takes the place of the older one, so there is at most one for each node and
key."""

from __future__ import annotations

from typing import Final

import msgspec

from mpreg.wire.gossip import MembershipUpdate, StateUpdate, Updates

WAITING_MAX: Final = 8192
"""Pieces of news. The most told one goes when there are more; comparing states makes up for it."""

News = MembershipUpdate | StateUpdate

_size = msgspec.msgpack.Encoder().encode


class _Item(msgspec.Struct):
    news: News
    size: int
    told: int


class Broadcasts:
    def __init__(self) -> None:
        self._by_times: list[dict[str, _Item]] = [{}]
        """At index n: what has been told n times, the oldest first."""
        self._at: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._at)

    def add(self, news: News) -> None:
        name = _name(news)
        self._remove(name)
        if len(self._at) >= WAITING_MAX:
            most_told = next(level for level in reversed(self._by_times) if level)
            self._remove(next(iter(most_told)))
        self._put(name, _Item(news, len(_size(news)), 0))

    def take(self, bytes_max: int, limit: int, first: MembershipUpdate | None = None) -> Updates:
        """What to tell one node now: as much as fits, but something, if there is anything. `first` goes in any case."""
        members: list[MembershipUpdate] = []
        state: list[StateUpdate] = []
        left = bytes_max
        if first is not None:
            left -= len(_size(first))
            members.append(first)
        taken: list[str] = []
        said = _name(first) if first is not None else None
        for level in self._by_times:
            for name in reversed(level):
                item = level[name]
                if name == said:
                    continue
                if item.size > left and (members or state):
                    left = 0  # looking for a smaller one would mean looking at all
                    break
                left -= item.size
                taken.append(name)
                if isinstance(item.news, MembershipUpdate):
                    members.append(item.news)
                else:
                    state.append(item.news)
                if left <= 0:
                    break
            if left <= 0:
                break
        for name in taken:
            self._told(name, limit)
        return Updates(members=tuple(members), state=tuple(state))

    def forget_state(self, key: str) -> None:
        self._remove("k" + key)

    def _told(self, name: str, limit: int) -> None:
        item = self._by_times[self._at[name]][name]
        self._remove(name)
        item.told += 1
        if item.told < limit:
            self._put(name, item)

    def _put(self, name: str, item: _Item) -> None:
        while len(self._by_times) <= item.told:
            self._by_times.append({})
        self._by_times[item.told][name] = item
        self._at[name] = item.told

    def _remove(self, name: str) -> None:
        told = self._at.pop(name, None)
        if told is not None:
            del self._by_times[told][name]


def _name(news: News) -> str:
    return "m" + news.node.node_id if isinstance(news, MembershipUpdate) else "k" + news.key
