"""Consensus within a cluster: a value is set if a majority of the known members accepts it.

All members that have not left are asked, the dead too, so that of two halves of a divided cluster at most one decides.
Each member votes once for each version of a key: for the first proposal that it hears of. Its vote binds it until the
proposal can't be accepted any more: when the proposer says that it has ended, or twice the time of a vote has passed.
A proposer counts no vote after its own deadline, so the two never overlap.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from mpreg.cluster.core import Core
from mpreg.cluster.effects import Decided, Outcome
from mpreg.cluster.record import LEFT
from mpreg.cluster.shared_state import KEY_BYTES_MAX
from mpreg.cluster.state_keys import StateKeys
from mpreg.wire.gossip import ConsensusProposal, ConsensusVote

OPEN_MAX: Final = 64
"""Proposals of this node that are under way."""
CAST_MAX: Final = 1024
"""Votes that this node remembers. When there are more, it accepts nothing new until some have lapsed."""
ASK_AGAIN_S: Final = 1.0


class _Ballot(msgspec.Struct):
    proposal: ConsensusProposal
    electorate: frozenset[str]
    ends_at: float
    accepted: set[str]
    refused: set[str]

    @property
    def majority(self) -> int:
        return len(self.electorate) // 2 + 1


class _Cast(msgspec.Struct, frozen=True):
    base_version: int
    proposal_id: str
    proposer: str
    lapses_at: float


class Ballots:
    def __init__(self, core: Core, keys: StateKeys) -> None:
        self._core = core
        self._keys = keys
        self._open: dict[str, _Ballot] = {}
        self._cast: dict[str, _Cast] = {}

    def propose(self, proposal_id: str, key: str, value: Any) -> None:
        core = self._core
        if proposal_id in self._open or len(self._open) >= OPEN_MAX:
            reason = "the proposal is open already" if proposal_id in self._open else "too many open proposals"
            core.effect(Decided(proposal_id, key, value, "rejected", reason))
            return
        self._keys.check(key, value)
        electorate = {each.node.node_id for each in core.members if each.state != LEFT} | {core.me.node_id}
        proposal = ConsensusProposal(
            proposal_id=proposal_id, key=key, value=value, base_version=core.state.version_of(key)
        )
        ends_at = core.now + core.settings.vote_timeout_s
        ballot = self._open[proposal_id] = _Ballot(proposal, frozenset(electorate), ends_at, set(), set())
        core.timers.set(("ask_again", proposal_id), core.now + ASK_AGAIN_S)
        core.timers.set(("vote_ends", proposal_id), ends_at)
        self._ask(ballot)
        accept, reason = self._vote(proposal, core.me.node_id)
        self._count(ballot, core.me.node_id, accept, reason)

    def ask_again(self, proposal_id: str) -> None:
        ballot = self._open.get(proposal_id)
        if ballot is not None:
            self._core.timers.set(("ask_again", proposal_id), self._core.now + ASK_AGAIN_S)
            self._ask(ballot)

    def ends(self, proposal_id: str) -> None:
        ballot = self._open.get(proposal_id)
        if ballot is not None:
            heard = len(ballot.accepted) + len(ballot.refused)
            self._finish(ballot, "expired", f"{heard} of {len(ballot.electorate)} members have voted")

    def asked(self, proposal: ConsensusProposal, from_node: str) -> None:
        core = self._core
        if proposal.ended:
            cast = self._cast.get(proposal.key)
            if cast is not None and (cast.proposal_id, cast.proposer) == (proposal.proposal_id, from_node):
                del self._cast[proposal.key]
            return
        if not 0 < len(proposal.key) <= KEY_BYTES_MAX or len(proposal.proposal_id) > KEY_BYTES_MAX:
            core.intake.drop("key")
            return
        accept, reason = self._vote(proposal, from_node)
        if from_node in core.links:
            vote = ConsensusVote(proposal_id=proposal.proposal_id, voter=core.me.node_id, accept=accept, reason=reason)
            core.send(from_node, "consensus_vote", vote)

    def voted(self, vote: ConsensusVote, from_node: str) -> None:
        """A vote counts for the node whose link it came over, and no other."""
        ballot = self._open.get(vote.proposal_id)
        if vote.voter != from_node:
            self._core.intake.drop("sender")
        elif ballot is not None and self._core.now < ballot.ends_at:
            self._count(ballot, from_node, vote.accept, vote.reason)

    def _vote(self, proposal: ConsensusProposal, proposer: str) -> tuple[bool, str]:
        core = self._core
        if core.state.version_of(proposal.key) > proposal.base_version:
            return False, "the key has a newer version"
        cast = self._cast.get(proposal.key)
        if cast is not None and cast.lapses_at > core.now and cast.base_version >= proposal.base_version:
            is_same = (cast.proposal_id, cast.proposer) == (proposal.proposal_id, proposer)
            return is_same, "" if is_same else "voted for another proposal"
        if cast is None and len(self._cast) >= CAST_MAX and not self._forget_lapsed():
            return False, "too many votes at once"
        lapses_at = core.now + 2 * core.settings.vote_timeout_s
        self._cast[proposal.key] = _Cast(proposal.base_version, proposal.proposal_id, proposer, lapses_at)
        return True, ""

    def _forget_lapsed(self) -> bool:
        self._cast = {key: cast for key, cast in self._cast.items() if cast.lapses_at > self._core.now}
        return len(self._cast) < CAST_MAX

    def _count(self, ballot: _Ballot, voter: str, accept: bool, reason: str) -> None:
        if voter not in ballot.electorate or voter in ballot.accepted | ballot.refused:
            return
        (ballot.accepted if accept else ballot.refused).add(voter)
        if len(ballot.accepted) >= ballot.majority:
            self._accept(ballot)
        elif len(ballot.electorate) - len(ballot.refused) < ballot.majority:
            self._finish(ballot, "rejected", reason)

    def _accept(self, ballot: _Ballot) -> None:
        proposal = ballot.proposal
        if self._core.state.version_of(proposal.key) != proposal.base_version:
            self._finish(ballot, "rejected", "the key has a newer version")
            return
        self._finish(ballot, "accepted", "")
        self._keys.put(proposal.key, proposal.value, None)

    def _finish(self, ballot: _Ballot, outcome: Outcome, reason: str) -> None:
        core = self._core
        proposal = ballot.proposal
        del self._open[proposal.proposal_id]
        core.timers.cancel(("ask_again", proposal.proposal_id))
        core.timers.cancel(("vote_ends", proposal.proposal_id))
        core.effect(Decided(proposal.proposal_id, proposal.key, proposal.value, outcome, reason))
        ended = msgspec.structs.replace(proposal, value=None, ended=True)
        if outcome != "accepted":
            self.asked(ended, core.me.node_id)
            for node_id in sorted(ballot.electorate):
                if node_id in core.links:
                    core.send(node_id, "consensus_proposal", ended)

    def _ask(self, ballot: _Ballot) -> None:
        """Those who have not voted yet; what got lost is made up for like this."""
        core = self._core
        for node_id in sorted(ballot.electorate - ballot.accepted - ballot.refused):
            if node_id in core.links:
                core.send(node_id, "consensus_proposal", ballot.proposal)
