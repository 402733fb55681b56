"""Who wants what: subscriptions, found by id, by owner, and by the topic of a message.

Invariant: a topic's answer has each subscription once, however many of its patterns match (R-P2), and what is left
after the last subscription ends is what there was before the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

from mpreg.errors import PubSubError
from mpreg.pubsub.limits import PubSubLimits
from mpreg.pubsub.memo import Memo
from mpreg.pubsub.patterns import Levels, split_topic
from mpreg.pubsub.trie import PatternTrie

R = TypeVar("R")

TARGETS_SHARED_MAX: Final = 4_096


class Subscription(Generic[R]):
    """`receiver` takes the messages; `owner` is whose it is, a session or a program's handler."""

    __slots__ = ("id", "owner", "patterns", "receiver")

    def __init__(self, id: str, owner: Any, patterns: tuple[Levels, ...], receiver: R) -> None:
        self.id = id
        self.owner = owner
        self.patterns = patterns
        self.receiver = receiver

    def __repr__(self) -> str:
        return f"<Subscription {self.id} {' '.join('.'.join(levels) for levels in self.patterns)}>"


Targets = tuple[Subscription[R], ...]

Watcher = Callable[[Levels, bool], None]
"""A pattern, and whether someone wants it now or nobody does any more."""


class Interest:
    """What other nodes have to know: the patterns that anybody here wants, kept up with every change."""

    def __init__(self, trie: PatternTrie[Any]) -> None:
        self.version = 0
        self._trie = trie
        self._watchers: list[Watcher] = []

    def __iter__(self) -> Iterator[Levels]:
        return iter(self._trie)

    def __len__(self) -> int:
        return self._trie.patterns

    def watch(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    def changed(self, pattern: Levels, wanted: bool) -> None:
        self.version += 1
        for watcher in self._watchers:
            watcher(pattern, wanted)


class Exchange(Generic[R]):
    def __init__(self, limits: PubSubLimits) -> None:
        self._limits = limits
        self._trie = PatternTrie[Subscription[R]]()
        self._memo = Memo[Targets[R]](limits.hot_topics_max)
        self._by_id: dict[str, Subscription[R]] = {}
        self._by_owner: dict[Any, dict[str, Subscription[R]]] = {}
        self._shared: dict[Targets[R], Targets[R]] = {}
        self._pairs = 0
        self.interest = Interest(self._trie)

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def hot_topics(self) -> int:
        return len(self._memo)

    def owned_by(self, owner: Any) -> Iterable[Subscription[R]]:
        return self._by_owner.get(owner, {}).values()

    def subscribe(self, subscription: Subscription[R]) -> None:
        """Raises `PUBSUB_SUBSCRIPTION_EXISTS` or `PUBSUB_LIMIT`, and has changed nothing then."""
        limits, id = self._limits, subscription.id
        if id in self._by_id:
            raise PubSubError(
                "PUBSUB_SUBSCRIPTION_EXISTS",
                f"There is a subscription {id[:80]!r} already",
                field="subscription_id",
            )
        mine = self._by_owner.get(subscription.owner, {})
        if len(mine) >= limits.subscriptions_per_connection_max:
            raise _over("subscriptions of this connection", limits.subscriptions_per_connection_max)
        if self._pairs + len(subscription.patterns) > limits.patterns_max:
            raise _over("patterns of all subscriptions", limits.patterns_max)
        self._by_id[id] = subscription
        mine[id] = subscription
        self._by_owner[subscription.owner] = mine
        self._pairs += len(subscription.patterns)
        for pattern in subscription.patterns:
            new = self._trie.add(pattern, subscription)
            self._memo.changed(pattern)
            if new:
                self.interest.changed(pattern, True)

    def unsubscribe(self, owner: Any, id: str) -> Subscription[R]:
        """The subscription that has ended. Another owner's is as unknown as one that never was (R-P3)."""
        mine = self._by_owner.get(owner, {})
        if id not in mine:
            raise PubSubError(
                "PUBSUB_SUBSCRIPTION_NOT_FOUND",
                f"This connection has no subscription {id[:80]!r}",
                field="subscription_id",
            )
        subscription = mine.pop(id)
        if not mine:
            del self._by_owner[owner]
        self._forget(subscription)
        return subscription

    def forget(self, owner: Any) -> list[Subscription[R]]:
        """All subscriptions of an owner that has gone (R-P3)."""
        mine = list(self._by_owner.pop(owner, {}).values())
        for subscription in mine:
            self._forget(subscription)
        return mine

    def match(self, topic: str) -> Targets[R]:
        """Whom a message of this topic goes to. Equal answers for different topics are one object, for as long as it
        lasts. Raises `PUBSUB_INVALID_TOPIC`."""
        targets = self._memo.get(topic)
        if targets is None:
            found = self._trie.match(topic, split_topic(topic))
            targets = tuple(found) if len(found) < 2 else tuple(dict.fromkeys(found))
            if len(self._shared) >= TARGETS_SHARED_MAX:
                self._shared.clear()
            targets = self._shared.setdefault(targets, targets)
            self._memo.put(topic, targets)
        return targets

    def trie_stats(self) -> dict[str, float]:
        return self._trie.shape()

    def _forget(self, subscription: Subscription[R]) -> None:
        del self._by_id[subscription.id]
        self._pairs -= len(subscription.patterns)
        for pattern in subscription.patterns:
            last = self._trie.remove(pattern, subscription)
            self._memo.changed(pattern)
            if last:
                self.interest.changed(pattern, False)
        self._shared.clear()
        if not self._by_id:
            self._memo.clear()


def _over(what: str, limit: int) -> PubSubError:
    return PubSubError("PUBSUB_LIMIT", f"The limit of {what} is {limit}", limit=limit)
