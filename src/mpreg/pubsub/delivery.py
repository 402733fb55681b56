"""How messages get to their subscriptions. What comes in during one turn of the event loop leaves together:
messages for the same subscriptions are one run, which is encoded once, and each subscriber costs one write.

Each subscription gets its messages in the order in which the node got them.
"""

from __future__ import annotations

import asyncio
import contextlib
from operator import attrgetter
from typing import Final

from mpreg.pubsub.exchange import Subscription, Targets
from mpreg.pubsub.message import Published
from mpreg.pubsub.outbox import Outbox, Receiver
from mpreg.pubsub.run import RUN_BYTES, Run, runs_of

PUMP_S: Final = 0.002
"""When a subscriber that was not ready is looked at again; later each time when none of them has read anything."""
PUMP_S_MAX: Final = 0.05

_PLACE = attrgetter("place")


class _Group:
    """What came for one set of targets in this turn."""

    __slots__ = ("open", "runs", "targets")

    def __init__(self, targets: Targets[Receiver], run: Run) -> None:
        self.targets = targets
        self.runs = [run]
        self.open = run


class Delivery:
    def __init__(self, origin: str) -> None:
        self.slow: set[Outbox] = set()
        """Those with something that waits."""
        self._origin = origin
        self._loop = asyncio.get_running_loop()
        self._groups: dict[int, _Group] = {}
        self._place = 0
        self._timer: asyncio.TimerHandle | None = None
        self._pump_s = PUMP_S

    def add(self, targets: Targets[Receiver], published: Published) -> None:
        """To be delivered at the end of this turn."""
        groups = self._groups
        self._place = published.place = self._place + 1
        group = groups.get(id(targets))
        if group is None:
            if not groups:
                self._loop.call_soon(self.flush)
            groups[id(targets)] = _Group(targets, Run(self._origin, [published], published.size))
            return
        run = group.open
        if run.size >= RUN_BYTES or published.size >= RUN_BYTES:  # a large one is alone, so it is lost alone
            run = group.open = Run(self._origin, [])
            group.runs.append(run)
        run.messages.append(published)
        run.size += published.size

    def flush(self) -> None:
        """Deliver what has come so far."""
        if not self._groups:
            return
        groups, self._groups = list(self._groups.values()), {}
        if self.slow:
            self.pump()
        if len(groups) == 1:
            for subscription in groups[0].targets:
                for run in groups[0].runs:
                    subscription.receiver.take(run)
        else:
            self._flush_merged(groups)
        self.watch_slow()

    def watch_slow(self) -> None:
        if self.slow and self._timer is None:
            self._timer = self._loop.call_later(self._pump_s, self._look_again)

    async def drain(self, grace_s: float) -> None:
        """Return when everybody has been given what waits for them, or after the grace time."""
        self.flush()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while self.slow:
                    await asyncio.sleep(PUMP_S)
                    self.pump()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._groups.clear()

    def _flush_merged(self, groups: list[_Group]) -> None:
        """A subscription that is in several groups gets one stream in order, made once for all with the same groups."""
        wanted: dict[Subscription[Receiver], list[_Group]] = {}
        for group in groups:
            for subscription in group.targets:
                wanted.setdefault(subscription, []).append(group)
        merged: dict[tuple[int, ...], list[Run]] = {}
        for subscription, found in wanted.items():
            if len(found) == 1:
                runs = found[0].runs
            else:
                key = tuple(map(id, found))
                known = merged.get(key)
                if known is None:
                    messages = [published for group in found for run in group.runs for published in run.messages]
                    messages.sort(key=_PLACE)
                    known = merged[key] = list(runs_of(self._origin, messages))
                runs = known
            for run in runs:
                subscription.receiver.take(run)

    def pump(self) -> None:
        """Write to those that were not ready, as far as they are now."""
        progress = [outbox.pump() for outbox in list(self.slow)]
        self._pump_s = PUMP_S if any(progress) else min(2 * self._pump_s, PUMP_S_MAX)

    def _look_again(self) -> None:
        self._timer = None
        self.pump()
        self.watch_slow()
