"""The machine under a case: cores used by each process and by others, and pinning a whole case to one core."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SAMPLE_S = 0.15
STEAL_SHOWN = 0.02


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on: state, parent, group, session, …"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def members(sessions: Mapping[str, int]) -> dict[str, list[int]]:
    """The processes of each named session."""
    found: dict[str, list[int]] = {name: [] for name in sessions}
    names = {session: name for name, session in sessions.items()}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _stat(int(entry))) and (name := names.get(int(stat[3]))):
            found[name].append(int(entry))
    return found


def _ticks(pids: list[int]) -> int:
    return sum(int(stat[11]) + int(stat[12]) for pid in pids if (stat := _stat(pid)))


def _machine() -> tuple[int, int]:
    """Busy ticks of the whole machine, and those that the hypervisor took."""
    user, nice, system, _idle, _wait, irq, soft, steal = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    )
    return user + nice + system + irq + soft, steal


class Meter:
    """`with Meter({"client": session}) as meter: …; meter.cpu` is cores used by each, by `other` and in `all`."""

    def __init__(self, sessions: Mapping[str, int]) -> None:
        self.members = members(sessions)
        self.cpu: dict[str, float] = {}

    def __enter__(self) -> Meter:
        self.before = {name: _ticks(pids) for name, pids in self.members.items()}
        self.busy, self.steal = _machine()
        self.start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        ticks = (time.perf_counter() - self.start) * TICKS_PER_S
        busy, steal = _machine()
        self.cpu = {name: round((_ticks(pids) - self.before[name]) / ticks, 2) for name, pids in self.members.items()}
        everything = (busy - self.busy) / ticks
        self.cpu["other"] = round(max(0.0, everything - sum(self.cpu.values())), 2)
        self.cpu["all"] = round(everything, 2)
        if (steal - self.steal) / ticks > STEAL_SHOWN:
            self.cpu["steal"] = round((steal - self.steal) / ticks, 2)


def _idle_ticks() -> dict[int, int]:
    lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    return {
        int(name[3:]): int(idle) + int(wait)
        for name, _, _, _, idle, wait, *_ in (line for line in lines if line[0].startswith("cpu") and line[0] != "cpu")
    }


def idlest_core() -> int:
    before = _idle_ticks()
    time.sleep(SAMPLE_S)
    after = _idle_ticks()
    return max(os.sched_getaffinity(0), key=lambda core: after[core] - before[core])


def _pin(pids: list[int], cores: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                os.sched_setaffinity(int(thread), cores)


@contextlib.contextmanager
def one_core(sessions: Mapping[str, int]) -> Iterator[None]:
    """All processes of a case on the idler core: no halted virtual core has to be woken inside a round trip, so the
    time is that of the software, client and server and broker together."""
    pids = [pid for family in members(sessions).values() for pid in family]
    everywhere = os.sched_getaffinity(0)
    _pin(pids, {idlest_core()})
    try:
        yield
    finally:
        _pin(pids, everywhere)
