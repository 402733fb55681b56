"""A store in which the keys of the example suite lie as they should, and keys that nobody declared."""

from __future__ import annotations

import datetime

from examples.poppo_keys import (
    ACTIVE,
    COMPLETED,
    HEARTBEAT,
    INFLIGHT,
    ISSUE_LOCK,
    ISSUE_METADATA,
    ISSUE_STATUS,
    METRIC_HISTORY,
    PROCESS_INFO,
    PROCESSING,
    QUEUE,
    STATS_DAILY,
    TASK_INFO,
    TASK_RESULT,
    IssueStatus,
    Measurement,
    ProcessInfo,
    TaskInfo,
    poppo,
)

from mpreg.keyspace import Catalog
from mpreg.store import Store

CATALOG = Catalog([poppo])
PROCESS = "issue-123-poppo"
DAY = datetime.date(2025, 6, 19)
MOMENT = datetime.datetime(2025, 6, 19, 12, tzinfo=datetime.UTC)
KEYS = 16


async def fill(store: Store) -> None:
    """Issue 123 is being worked on, 124 is done, a task of 125 waits."""
    for issue in (123, 124, 125):
        status = {123: "processing", 124: "completed", 125: "queued"}[issue]
        await ISSUE_STATUS.at(issue=issue).put(
            store, IssueStatus(status=status, process_id=PROCESS if issue == 123 else None)
        )
    await ISSUE_METADATA.at(issue=123).set(store, {"title": "日本"})
    await PROCESSING.at().add(store, 123)
    await COMPLETED.at(date=DAY).add(store, 124)
    await PROCESS_INFO.at(process=PROCESS).put(store, ProcessInfo(status="active", issue_number=123))
    await HEARTBEAT.at(process=PROCESS).set(store, "alive")
    await ACTIVE.at().add(store, PROCESS)
    await ISSUE_LOCK.at(issue=123).set(store, b"token", only_if="absent")
    await TASK_INFO.at(task="task-7").put(store, TaskInfo(issue_number=125, type="fix"))
    await QUEUE.at(priority="high").append(store, "task-7")
    await INFLIGHT.at().add(store, {"task-7": 1.0})
    await TASK_RESULT.at(task="task-6").set(store, {"ok": True})
    await STATS_DAILY.at(date=DAY).add(store, "completed")
    await METRIC_HISTORY.at(metric="cpu").append(store, Measurement(0.5, MOMENT))
