"""Runs a group: round after round, in each one trial of every peer, so that a drift of the machine hits all alike."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from bench.meters import Meter, one_core
from bench.plan import Group, Measured, Options, Peer, interpreter, wanted
from bench.processes import Role, RoleFailed
from bench.servers import Server, Servers

ATTEMPTS = 2


class Context:
    """What a trial works with: the options, the brokers, and roles that end with the trial."""

    def __init__(self, options: Options, servers: Servers) -> None:
        self.options = options
        self.servers = servers

    @property
    def secs(self) -> float:
        return self.options.secs

    def server(self, peer: Peer) -> Server | None:
        return self.servers.get(peer.server) if peer.server else None

    @contextmanager
    def role(self, role: str, config: Mapping[str, object], *, venv: str = "") -> Iterator[Role]:
        python = str(interpreter(venv)) if venv else sys.executable
        with Role(role, config, loop=self.options.loop, python=python) as started:
            yield started

    def metered(
        self, role: Role, order: Mapping[str, object], sessions: Mapping[str, int], *, pinned: bool = False
    ) -> Measured:
        """One order to one role, answered with figures, while the machine is watched."""
        if pinned:
            with one_core(sessions):
                return self.metered(role, order, sessions)
        with Meter(sessions) as meter:
            answer = role.ask(order, timeout_s=60 + 10 * self.secs)
        return Measured({name: (value, unit) for name, (value, unit) in answer["figures"].items()}, meter.cpu)


class Outcome(msgspec.Struct):
    """rounds[i] holds what round i measured: (case, peer) -> Measured."""

    rounds: list[dict[tuple[str, str], Measured]]
    missing: dict[str, str]
    """peer -> what it lacks and how to get it."""
    failed: dict[str, str]
    """peer -> why it has no figures, or fewer than the others."""


def note(text: str) -> None:
    print(f"# {text}", file=sys.stderr, flush=True)


def run_group(group: Group, options: Options) -> Outcome:
    outcome = Outcome([], {}, {})
    present: list[Peer] = []
    for peer in wanted(group.PEERS, options.only):
        if reason := peer.missing():
            outcome.missing[peer.name] = reason
        else:
            present.append(peer)
    with Servers() as servers:
        context = Context(options, servers)
        for number in range(options.reps):
            note(f"round {number + 1} of {options.reps}: {', '.join(peer.name for peer in present)}")
            outcome.rounds.append(_round(group, context, present, outcome.failed))
    return outcome


def _round(
    group: Group, context: Context, peers: list[Peer], failed: dict[str, str]
) -> dict[tuple[str, str], Measured]:
    measured: dict[tuple[str, str], Measured] = {}
    for peer in peers:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                trial = group.trial(peer, context)
            except (RoleFailed, OSError, RuntimeError) as error:
                note(f"{peer.name}, attempt {attempt}: {error}")
                if attempt == ATTEMPTS:
                    failed[peer.name] = f"{type(error).__name__}: {error}"
            else:
                measured.update({(case, peer.name): result for case, result in trial.items()})
                break
    return measured
