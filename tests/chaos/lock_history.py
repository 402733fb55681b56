"""What must hold of a history of locks, whatever happened to the processes: pure functions over recorded events.

Every process writes what it does, with the machine's monotonic clock, which all processes share. `valid_until` is
what a holder may believe at that moment; a holder that is paused or killed writes nothing, and then its belief ends
there. So who believed to hold the lock when is known for each process, dead or alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

What = Literal["acquired", "renewed", "released", "lost", "left", "wrote", "refused", "resumed"]


class Event(msgspec.Struct, frozen=True):
    at: float
    process: int
    what: What
    fence: int = 0
    valid_until: float = 0.0
    """After `acquired` and `renewed`; after `resumed`: what was believed before the pause."""
    number: int = 0
    """Of a write: which one it was, as the resource counts those that it takes."""


class Belief(msgspec.Struct, frozen=True):
    """From when to when one holder had reason to think that the lock was its own."""

    process: int
    fence: int
    start: float
    end: float


def beliefs(events: Iterable[Event]) -> list[Belief]:
    found: list[Belief] = []
    held: dict[int, Belief] = {}
    for event in sorted(events, key=lambda event: event.at):
        now = held.get(event.process)
        match event.what:
            case "acquired":
                held[event.process] = Belief(event.process, event.fence, event.at, event.valid_until)
                if now is not None:
                    found.append(now)
            case "renewed" if now is not None:
                held[event.process] = msgspec.structs.replace(now, end=event.valid_until)
            case "released" | "lost" | "left" if now is not None:
                found.append(msgspec.structs.replace(now, end=min(now.end, event.at)))
                del held[event.process]
            case _:
                pass
    return sorted([*found, *held.values()], key=lambda belief: belief.start)


def violations(events: Sequence[Event]) -> list[str]:
    """What is wrong with a history; empty if it is as it must be."""
    ordered = sorted(events, key=lambda event: event.at)
    return [*_two_holders(ordered), *_fences(ordered), *_writes(ordered), *_unaware(ordered)]


def _two_holders(events: Sequence[Event]) -> list[str]:
    found = []
    latest: Belief | None = None
    for belief in beliefs(events):
        if belief.end <= belief.start:
            continue
        if latest is not None and belief.start < latest.end:
            found.append(f"two holders: {latest.fence} until {latest.end:.6f}, {belief.fence} from {belief.start:.6f}")
        if latest is None or belief.end > latest.end:
            latest = belief
    return found


def _fences(events: Sequence[Event]) -> list[str]:
    """No fence twice, and each that is heard of later is higher. As the holders don't overlap, the order in which
    they heard is the order in which they were given; but for who hears of it only when its lease is over."""
    found = []
    last = 0
    seen: set[int] = set()
    for event in events:
        if event.what == "acquired":
            if event.fence in seen:
                found.append(f"the fence {event.fence} was given twice")
            elif event.fence <= last and event.at < event.valid_until:
                found.append(f"the fence {event.fence} came after {last}")
            seen.add(event.fence)
            last = max(last, event.fence)
    return found


def _writes(events: Sequence[Event]) -> list[str]:
    """The guarded resource took no write with a fence below one that it had taken before."""
    found = []
    last = 0
    for event in sorted((event for event in events if event.what == "wrote"), key=lambda event: event.number):
        if event.fence < last:
            found.append(f"a write with the fence {event.fence} was taken after one with {last}")
        last = max(last, event.fence)
    return found


def _unaware(events: Sequence[Event]) -> list[str]:
    """Whoever comes back from a pause over the end of its lease says that it lost, before it says anything else."""
    found = []
    overslept: dict[int, Event] = {}
    for event in events:
        pending = overslept.pop(event.process, None)
        if pending is not None and event.what != "lost":
            found.append(f"process {event.process} overslept its lease {pending.fence}, then {event.what}")
        if event.what == "resumed" and event.at >= event.valid_until:
            overslept[event.process] = event
    found += [f"process {process} overslept its lease and never noticed" for process in overslept]
    return found
