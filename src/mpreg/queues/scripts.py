"""The scripts of a queue, one a verb: each is what all verbs share, and its own file behind it."""

from __future__ import annotations

from typing import Final

from mpreg.store import Script

_LIBRARY: Final = Script.load("mpreg.queues", "lua/queue.lua").source
_CHOOSE: Final = Script.load("mpreg.queues", "lua/choose.lua").source


_ALWAYS: Final = b"#!lua flags=allow-oom\n"
"""Runs also when the store is at its maxmemory: what is there can still be received and acknowledged, and so freed."""
_WITH_ROOM: Final = b"#!lua\n"
"""Refused as a whole when the store is at its maxmemory, so that it has surely not run."""


def _verb(name: str, *, chooses: bool = False, grows: bool = False) -> Script:
    verb = Script.load("mpreg.queues", f"lua/{name}.lua").source
    shebang = _WITH_ROOM if grows else _ALWAYS
    return Script.of(shebang + _LIBRARY + (_CHOOSE if chooses else b"") + verb, f"queues.{name}")


CREATE = _verb("create", grows=True)
SEND = _verb("send", grows=True)
CLAIM = _verb("claim", chooses=True)
ACKNOWLEDGE = _verb("acknowledge")
EXTEND = _verb("extend")
SETTLE = _verb("settle")
FIRE = _verb("fire")
STATS = _verb("stats")
PEEK = _verb("peek", chooses=True)
PURGE = _verb("purge")
REDRIVE = _verb("redrive")
SUBSCRIBE = _verb("subscribe")
UNSUBSCRIBE = _verb("unsubscribe")
RENEW = _verb("renew")


def _plain(name: str) -> Script:
    return Script.of(_ALWAYS + Script.load("mpreg.queues", f"lua/{name}.lua").source, f"queues.{name}")


SCHEDULE_PUT = _plain("schedule_put")
SCHEDULE_TAKE = _plain("schedule_take")
SCHEDULE_DONE = _plain("schedule_done")
SCHEDULE_DELETE = _plain("schedule_delete")
