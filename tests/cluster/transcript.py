"""Golden transcripts: what a machine `a` does, line by line, as text that reads like the protocol.

A file has commands, each after `> `, and below each what the machine then did. `python -m tests.cluster.transcript`
writes the files anew from what the machine does now; the difference is for a reviewer to read.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec
from tests.cluster.machines import EPOCH, One, Peer, node, said

from mpreg.cluster.effects import Dial, Effect, HealthHeard, NameTaken, NodeChanged, Send, StateChanged, WakeAt
from mpreg.cluster.events import Farewell, Leave, Linked, Put, Unlinked, Withdraw
from mpreg.cluster.settings import LAN
from mpreg.wire.gossip import (
    AntiEntropy,
    EventType,
    Gossip,
    Heartbeat,
    MembershipAck,
    MembershipProbe,
    MembershipUpdate,
    NodeInfo,
    Rumor,
    StateUpdate,
    Updates,
    decode_payload,
)

FOLDER = Path(__file__).parent / "transcripts"
QUIET = msgspec.structs.replace(LAN, heartbeat_interval_s=1e6, anti_entropy_interval_s=1e6)
"""Without the rounds that have nothing to do with who lives."""


class Transcript:
    def __init__(self) -> None:
        self.one = One("a", QUIET)
        self.peers: dict[str, Peer] = {}
        self.answering: set[str] = set()
        """Peers that answer probes of themselves, and say of others that they could not reach them."""

    def play(self, text: str) -> str:
        """The text with what the machine does in place of what was written."""
        out: list[str] = []
        for line in text.splitlines():
            if line.startswith("> "):
                out.append(line)
                out += self._command(line[2:].split())
            elif not line or line.startswith("#"):
                out.append(line)
        return "\n".join(out) + "\n"

    def _command(self, words: list[str]) -> list[str]:
        effects: list[Effect]
        match words:
            case ["link", name]:
                effects = self.one.step(Linked(self._peer(name).info))
            case ["unlink", name]:
                effects = self.one.step(Unlinked(self._node(name).node_id))
            case ["farewell", name]:
                effects = self.one.step(Farewell(name))
            case ["wait", seconds]:
                return self._wait(float(seconds))
            case ["hear", by, event, about, *rest]:
                source = rest[1] if rest else by.partition("/")[0]
                update = said(cast(EventType, event), self._node(about), source, EPOCH + self.one.now)
                effects = self.one.step(self._peer(by).says("membership_update", update, now=self.one.now))
            case ["probe", by, target]:
                payload = MembershipProbe(target=target)
                effects = self.one.step(self._peer(by).says("membership_probe", payload, "u1", self.one.now))
            case ["answering", *names]:
                self.answering = set(names)
                return []
            case ["put", key, value]:
                effects = self.one.step(Put(key, value))
            case ["withdraw", key]:
                effects = self.one.step(Withdraw(key))
            case ["leave"]:
                effects = self.one.step(Leave())
            case _:
                raise ValueError(f"no such command: {words}")
        return self._lines(effects)

    def _wait(self, seconds: float) -> list[str]:
        """Step by step, so that each line has its time."""
        until = self.one.now + seconds
        lines: list[str] = []
        while True:
            effects = self.one.step()
            lines += self._lines(effects)
            lines += self._answers(effects)
            wake = self.one.step()[-1]
            assert isinstance(wake, WakeAt)
            if wake.at > until:
                self.one.now = until
                return lines
            self.one.now = max(self.one.now, wake.at)

    def _answers(self, effects: list[Effect]) -> list[str]:
        lines: list[str] = []
        for effect in effects:
            if not (isinstance(effect, Send) and effect.node_id in self.answering):
                continue
            payload = decode_payload(effect.message)
            if isinstance(payload, MembershipProbe):
                ack = MembershipAck(target=payload.target, reached=payload.target == effect.node_id)
                peer = self._peer(effect.node_id)
                lines += self._lines(
                    self.one.step(peer.says("membership_ack", ack, str(effect.message.u), self.one.now))
                )
        return lines

    def _peer(self, name: str) -> Peer:
        found = self._node(name)
        peer = self.peers.get(name)
        if peer is None:
            peer = self.peers[name] = Peer(found.node_id, found)
        return peer

    def _node(self, name: str) -> NodeInfo:
        """`b` or `b@3`, with an incarnation, or `b/2@3`, with a run too."""
        rest, _, incarnation = name.partition("@")
        node_id, _, run = rest.partition("/")
        if node_id == "a" and not run:
            return msgspec.structs.replace(self.one.machine.me, incarnation=int(incarnation or 0))
        number = int(run or 1)
        base = node(node_id).started
        return node(node_id, incarnation=int(incarnation or 0), run=str(number), started=base + number - 1)

    def _lines(self, effects: list[Effect]) -> list[str]:
        return [
            f"  {self.one.now:6.2f}  {self._line(each)}"
            for each in effects
            if not isinstance(each, WakeAt | HealthHeard)
        ]

    def _line(self, effect: Effect) -> str:
        match effect:
            case NodeChanged(about, state):
                return f"node {_name(about)} is {state}"
            case StateChanged(key, value, source, version):
                shown = "gone" if value is None else msgspec.msgpack.decode(value)
                return f"key {key} is {shown} (version {version} of {source})"
            case Dial(node_id):
                return f"dial {node_id}"
            case NameTaken(holder):
                return f"the name is taken by {_name(holder)}"
            case Send(to, message):
                return f"send {to} {message.message_type}{_payload(message)}"
        return type(effect).__name__


def _name(about: NodeInfo) -> str:
    run = about.run_id.partition("-")[2]
    return f"{about.node_id}{'' if run == '1' else '/' + run}@{about.incarnation}"


def _payload(message: Gossip) -> str:
    match decode_payload(message):
        case MembershipProbe(target=target, updates=updates):
            return f" of {target}{_updates(updates)}"
        case MembershipAck(target=target, reached=reached, updates=updates):
            return f" of {target}{'' if reached else ', not reached'}{_updates(updates)}"
        case MembershipUpdate() as update:
            return _updates(Updates(members=(update,)))
        case StateUpdate() as update:
            return _updates(Updates(state=(update,)))
        case Rumor(updates=updates):
            return _updates(updates)
        case AntiEntropy(step=step):
            return f" {step}"
        case Heartbeat():
            return ""
    return ""


def _updates(updates: Updates) -> str:
    told = [f"{each.event_type} {_name(each.node)} by {each.source_node}" for each in updates.members]
    told += [f"{each.key}={'gone' if each.removed else each.value} v{each.version}" for each in updates.state]
    return ": " + ", ".join(told) if told else ""


def main() -> None:
    for file in sorted(FOLDER.glob("*.txt")):
        file.write_text(Transcript().play(file.read_text()))


if __name__ == "__main__":
    main()
