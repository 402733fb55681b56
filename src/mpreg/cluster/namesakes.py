"""Two nodes with one name. A record of another run under this node's name is most often that of its own former life,
which can't answer. One that lives raises its incarnation each time that it is outbid: then the one that started later
has to stop."""

from __future__ import annotations

from typing import Final

from mpreg.cluster.core import Core
from mpreg.cluster.effects import NameTaken
from mpreg.cluster.record import Record
from mpreg.wire.gossip import NodeInfo

ANSWERS_WANTED: Final = 3
"""Higher incarnations after being outbid that show that a namesake lives. One or two may be old news on its way."""
RIVALS_MAX: Final = 16


class Namesakes:
    def __init__(self, core: Core) -> None:
        self._core = core
        self._rivals: dict[str, tuple[int, int]] = {}
        """run_id -> the incarnation with which it was outbid last, and how often it answered."""
        self._yielded = False

    def may_contest(self, record: Record) -> bool:
        """False once this node has to yield to a living namesake."""
        rival = record.node
        bid, answers = self._rivals.get(rival.run_id, (None, 0))
        if bid is not None and record.is_live and rival.incarnation > bid:
            answers += 1
            self._rivals[rival.run_id] = (bid, answers)
        if answers < ANSWERS_WANTED or self._is_first(rival):
            return not self._yielded
        if not self._yielded:
            self._yielded = True
            self._core.effect(NameTaken(rival))
        return False

    def outbid(self, rival: NodeInfo, incarnation: int) -> None:
        if rival.run_id == self._core.me.run_id:
            return
        _, answers = self._rivals.pop(rival.run_id, (None, 0))
        self._rivals[rival.run_id] = (incarnation, answers)
        if len(self._rivals) > RIVALS_MAX:
            del self._rivals[next(iter(self._rivals))]

    def _is_first(self, rival: NodeInfo) -> bool:
        me = self._core.me
        return (me.started, me.run_id) < (rival.started, rival.run_id)
