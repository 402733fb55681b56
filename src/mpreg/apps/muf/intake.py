"""Which requests a backend takes on, and when: a pure machine. Time comes in as `now`, in seconds of any clock.

    event(name, now)     an event told of a request: True if it is to be taken now
    found(name, now)     a scan found it, unanswered: likewise
    elsewhere(name, now) another backend of the group has claimed it: look again after the lease, if claims are leased
    done(name, now)      answered, failed, or found to be gone
    next(now)            the next one to be taken since room was made or time has passed

At most `slots` are taken at a time. What comes beyond that is not claimed, so that other backends of the group may have
it; it is remembered and tried again when a slot is free (it may be gone or answered by then, which the taker checks).
An event and a scan may tell of the same request: the second of them is ignored. A `set` of the same key later on is a
request of its own, as the note has it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from mpreg.apps.muf.names import Name

REMEMBERED_MAX: Final = 100_000
LATE_EVENT_S: Final = 5.0
"""A scan may find a request before its event arrives; not longer than this before."""


class Intake:
    def __init__(self, slots: int, *, recheck_s: float | None = None) -> None:
        self.slots = slots
        """May be changed at any time; then ask `next`."""
        self._recheck_s = recheck_s
        self._taken: set[Name] = set()
        self._left: OrderedDict[Name, None] = OrderedDict()
        self._elsewhere: OrderedDict[Name, float] = OrderedDict()
        self._done: OrderedDict[Name, float] = OrderedDict()
        self._scanned: OrderedDict[Name, float] = OrderedDict()
        self.dropped = 0
        """Requests forgotten because too many were waiting; other backends, or the next scan, may still find them."""

    def __len__(self) -> int:
        """Requests that are being worked on."""
        return len(self._taken)

    @property
    def waiting(self) -> int:
        return len(self._left)

    @property
    def recheck_at(self) -> float | None:
        """When `next` should be asked again, though nothing happens: some other backend's lease may have run out."""
        return next(iter(self._elsewhere.values()), None)

    def event(self, name: Name, now: float) -> bool:
        _forget(self._scanned, now)
        if self._scanned.pop(name, None) is not None:
            return False
        return self._offer(name)

    def is_new(self, name: Name, now: float) -> bool:
        """Whether a scan that finds it has found something."""
        _forget(self._done, now)
        return name not in self._done and not self._is_known(name)

    def found(self, name: Name, now: float) -> bool:
        if not self.is_new(name, now):
            return False
        _remember(self._scanned, name, now + LATE_EVENT_S)
        return self._offer(name)

    def _is_known(self, name: Name) -> bool:
        return name in self._taken or name in self._left or name in self._elsewhere

    def _offer(self, name: Name) -> bool:
        if self._is_known(name):
            return False
        if len(self._taken) < self.slots and not self._left:
            self._taken.add(name)
            return True
        self._left[name] = None
        if len(self._left) > REMEMBERED_MAX:
            self._left.popitem(last=False)
            self.dropped += 1
        return False

    def next(self, now: float) -> Name | None:
        while self._elsewhere and next(iter(self._elsewhere.values())) <= now:
            name, _ = self._elsewhere.popitem(last=False)
            self._left[name] = None
        if not self._left or len(self._taken) >= self.slots:
            return None
        name, _ = self._left.popitem(last=False)
        self._taken.add(name)
        return name

    def elsewhere(self, name: Name, now: float, alive_s: float = 0.0) -> None:
        """`alive_s`: how much longer the request lives, and so may be found by a scan."""
        if self._recheck_s is None:
            self.done(name, now, alive_s)
            return
        self._taken.discard(name)
        self._elsewhere[name] = now + self._recheck_s
        if len(self._elsewhere) > REMEMBERED_MAX:
            self._elsewhere.popitem(last=False)
            self.dropped += 1

    def done(self, name: Name, now: float, alive_s: float = 0.0) -> None:
        self._taken.discard(name)
        _remember(self._done, name, now + alive_s)


def _remember(names: OrderedDict[Name, float], name: Name, until: float) -> None:
    names[name] = until
    if len(names) > REMEMBERED_MAX:
        names.popitem(last=False)


def _forget(names: OrderedDict[Name, float], now: float) -> None:
    """In the order of remembering; one that lives longer than those behind it keeps them a little longer."""
    while names and next(iter(names.values())) <= now:
        names.popitem(last=False)
