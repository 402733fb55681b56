"""The keys of a suite of workers that share issues, declared once.

    mpreg keys docs --schema examples/poppo_keys.py                 # as a page, or --json for other languages
    mpreg keys lint --schema examples/poppo_keys.py --store valkey://127.0.0.1
    mpreg keys find --schema examples/poppo_keys.py --store valkey://127.0.0.1 issue 123

Run as a program it needs no store: it builds some keys, and reads them back.
"""

from __future__ import annotations

import datetime
from typing import Annotated, Any, Literal

import msgspec

from mpreg.keyspace import Keyspace, Ttl, integer, json, raw, relation, text

Moment = Annotated[datetime.datetime, msgspec.Meta(tz=True)]
Priority = Literal["high", "normal", "low"]


class IssueStatus(msgspec.Struct, rename="camel", kw_only=True):
    status: Literal["queued", "processing", "awaiting-response", "completed", "error"]
    process_id: str | None = None
    task_type: str | None = None
    start_time: Moment | None = None
    end_time: Moment | None = None
    last_update: Moment | None = None


class ProcessInfo(msgspec.Struct, rename="camel", kw_only=True):
    status: Literal["active", "completed"]
    pid: int | None = None
    issue_number: int | None = None
    task_type: str | None = None
    last_seen: Moment | None = None


class TaskInfo(msgspec.Struct, rename="camel", kw_only=True):
    issue_number: int
    type: str
    priority: Priority = "normal"
    tries: int = 0


class Measurement(msgspec.Struct, rename="camel"):
    value: float
    at: Moment


class Request(msgspec.Struct, rename="camel"):
    request_id: str
    action: str
    process_id: str
    timestamp: Moment


class Response(msgspec.Struct, rename="camel"):
    request_id: str
    success: bool
    error: str | None = None


poppo = Keyspace("poppo", prefix="poppo:", about="Who works on which issue, what waits, and how it went.")

HEARTBEAT_S = 1_800
RESULT_S = 3_600
STATS_S = 7 * 86_400
LOCK_S = 300

# --- issues -----------------------------------------------------------------------------------------------------------

ISSUE_STATUS = poppo.hash(
    "issue:status:{issue:int}",
    IssueStatus,
    protection="state",
    relations=[relation("process:info", process="field.processId", required=False)],
    about="Where an issue stands, and which process has it.",
)
ISSUE_METADATA = poppo.free_hash("issue:metadata:{issue:int}", text, about="What the last run noted.")
PROCESSING = poppo.set(
    "issues:processing",
    integer,
    protection="state",
    relations=[relation("issue:status", issue="member")],
    about="Issues that a process works on now.",
)
COMPLETED = poppo.set("issues:completed:{date:date}", integer, ttl=STATS_S, about="Issues completed on a day.")
COMPLETED_TODAY = poppo.set(
    "issues:completed:today",
    integer,
    name="issues:completed:today",
    ttl=Ttl(until="midnight"),
    alias_of="issues:completed",
    about="The set of the current date under a name that stays.",
)

# --- processes --------------------------------------------------------------------------------------------------------

PROCESS_INFO = poppo.hash(
    "process:info:{process:word}", ProcessInfo, protection="state", about="A process that works on issues."
)
HEARTBEAT = poppo.string(
    "process:heartbeat:{process:word}",
    text,
    ttl=HEARTBEAT_S,
    relations=[relation("process:info", process="key.process")],
    about="Written again and again; a process without one is lost.",
)
ACTIVE = poppo.set(
    "processes:active",
    text,
    protection="state",
    relations=[relation("process:info", process="member")],
    about="Processes that are up.",
)
ZOMBIES = poppo.set("processes:zombies", text, about="Processes that were found without a heartbeat.")

# --- tasks ------------------------------------------------------------------------------------------------------------

QUEUE = poppo.list(
    "queue:{priority:high|normal|low}",
    text,
    protection="state",
    relations=[relation("task:info", task="member")],
    about="Tasks that wait, first in, first out within a priority.",
)
INFLIGHT = poppo.zset(
    "queue:inflight",
    text,
    protection="state",
    relations=[relation("task:info", task="member")],
    about="Tasks that were handed out; the score is when their lease ends, in seconds since 1970.",
)
TASK_INFO = poppo.hash(
    "task:info:{task:word}",
    TaskInfo,
    protection="state",
    relations=[relation("issue:status", issue="field.issueNumber", required=False)],
    about="What is to be done.",
)
TASK_RESULT = poppo.string("task:result:{task:word}", json(dict[str, Any]), ttl=RESULT_S, about="How it went.")

# --- figures, settings, locks -----------------------------------------------------------------------------------------

STATS_DAILY = poppo.free_hash("stats:issues:daily:{date:date}", integer, ttl=STATS_S, about="Counts of one day.")
STATS_HOURLY = poppo.free_hash("stats:performance:hourly", text, about="Figures of the current hour.")
METRIC = poppo.string("metrics:{metric}:current", text, about="The last measurement.")
METRIC_HISTORY = poppo.stream("metrics:{metric}:history", Measurement, entries_max=10_000, about="Measurements.")
CONFIG = poppo.string("config:{component}:{setting}", text, protection="state", about="A setting that may change.")
FLAG = poppo.string("flags:{flag:path}", text, protection="state", about="A switch: maintenance, debug:enabled.")
LOCK = poppo.lock("lock:{kind:process|backup|request}:{name:word}", raw, ttl=LOCK_S, about="The token of the holder.")
ISSUE_LOCK = poppo.lock(
    "lock:issue:{issue:int}",
    raw,
    ttl=LOCK_S,
    relations=[relation("issue:status", issue="key.issue", required=False)],
    about="Who works on an issue holds this.",
)

# --- channels ---------------------------------------------------------------------------------------------------------

REQUESTS = poppo.channel("channel:mirin:requests", json(Request), about="What processes ask for.")
RESPONSES = poppo.channel("channel:mirin:responses", json(Response), about="One answer to each request.")
EVENTS = poppo.channel("channel:events:{subject}:{kind}", json(dict[str, Any]), about="What has changed.")


def main() -> None:
    print(ISSUE_STATUS.key(issue=123).decode())
    print(COMPLETED.key(date=datetime.date(2025, 6, 19)).decode())
    for key in (b"poppo:lock:issue:123", b"poppo:flags:debug:enabled", b"poppo:issue:statsu:123"):
        match = poppo.family_of(key)
        print(f"{key.decode()} is " + (f"{match.declaration.name} {match.values}" if match else "not declared"))


if __name__ == "__main__":
    main()
