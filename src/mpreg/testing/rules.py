"""What must hold after every step of a machine, whatever the network does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mpreg.cluster.effects import Effect, NodeChanged, StateChanged, WakeAt
from mpreg.cluster.machine import Machine
from mpreg.cluster.owned import owner_of

KEYS_WAITING_MAX: Final = 1024
"""Pieces of news about keys, in a simulation that does not write more of them."""


class RuleBroken(AssertionError):
    """A safety rule was broken, or something that must come true did not in time. The message names the seed."""


class Rules:
    """Of one run of one node."""

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id
        self._told: dict[str, tuple[str, str, int]] = {}
        """node_id -> run, state and incarnation, as the shell was told last."""
        self._shown: dict[str, int] = {}
        self._incarnation = 0

    def check(self, machine: Machine, effects: Iterable[Effect]) -> None:
        """Raises `RuleBroken`."""
        last: Effect | None = None
        for effect in effects:
            last = effect
            if type(effect) is NodeChanged:
                self._node_changed(effect)
            elif type(effect) is StateChanged:
                self._state_changed(effect)
        _require(isinstance(last, WakeAt), "the last effect is no WakeAt")
        _require(machine.me.incarnation >= self._incarnation, "the own incarnation went back")
        self._incarnation = machine.me.incarnation
        _require(
            machine.waiting_news <= 2 * machine.known + KEYS_WAITING_MAX,
            f"{machine.waiting_news} pieces of news wait in a cluster of {machine.known}",
        )

    def _node_changed(self, change: NodeChanged) -> None:
        node = change.node
        _require(node.node_id != self._node_id, "was told of itself")
        before = self._told.get(node.node_id)
        if before is None or before[0] != node.run_id:
            _require(change.state == "alive", f"a new run of {node.node_id} begins as {change.state}")
            was_over = before is None or before[1] in ("dead", "left")
            _require(was_over, f"a new run of {node.node_id} before the end of the old one")
        else:
            _, state, incarnation = before
            _require(node.incarnation >= incarnation, f"{node.node_id} went back to an older incarnation")
            if state in ("dead", "left"):
                _require(change.state == "alive", f"{node.node_id} went from {state} to {change.state}")
                _require(node.incarnation > incarnation, f"{node.node_id} rose from {state} by itself")
            elif state == "suspect" and change.state == "alive":
                _require(node.incarnation > incarnation, f"{node.node_id} was cleared by others")
        self._told[node.node_id] = (node.run_id, change.state, node.incarnation)

    def _state_changed(self, change: StateChanged) -> None:
        owner = owner_of(change.key)
        if change.value is None:
            self._shown.pop(change.key, None)
            return
        _require(change.version >= self._shown.get(change.key, 0), f"{change.key} went back to an older version")
        self._shown[change.key] = change.version
        if owner is not None and owner != self._node_id:
            _, state, _ = self._told.get(owner, ("", "unknown", 0))
            _require(state in ("alive", "suspect"), f"{change.key} is shown, but its node is {state}")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise RuleBroken(otherwise)
