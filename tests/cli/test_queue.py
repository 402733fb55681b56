"""`mpreg queue`: what scripts rely on, as real processes. What people read: tests/queues/test_guide.py."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import count
from typing import Any

from tests.cli.conftest import Mpreg
from tests.conformance.served import Served
from tests.node.processes import ENVIRONMENT

numbers = count(1)


def new_name() -> str:
    return f"cli-{next(numbers)}"


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_queue_is_made_once_and_with_other_settings_refused(at: Mpreg) -> None:
    name = new_name()
    assert lines(at("queue", "create", name, "--type", "fifo", "--json").out) == [{"queue_name": name, "created": True}]
    assert "was there already" in at("queue", "create", name, "--type", "fifo").out
    said = at("queue", "create", name, "--type", "delay", "--json")
    assert said.code == 1
    assert json.loads(said.err)["error"]["code"] == "QUEUE_EXISTS"


def test_messages_go_in_and_out_as_json(at: Mpreg) -> None:
    name = new_name()
    at("queue", "create", name)
    sent = lines(at("queue", "send", name, '{"a": 1}', "--topic", "t", "--header", "k=v", "--json").out)[0]
    assert (sent["queue_name"], sent["durability"]) == (name, "memory")
    (peeked,) = lines(at("queue", "peek", name, "--json").out)
    assert (peeked["message_id"], peeked["payload"]) == (sent["message_id"], {"a": 1})
    (got,) = lines(at("queue", "receive", name, "--json").out)
    assert (got["message_id"], got["payload"], got["topic"]) == (sent["message_id"], {"a": 1}, "t")
    assert got["headers"] == {"k": "v"}
    nothing = at("queue", "receive", name, "--wait", "0.1")
    assert (nothing.code, nothing.out) == (1, "")
    stats = lines(at("queue", "stats", name, "--json").out)[0]
    assert (stats["messages_acknowledged"], stats["current_queue_size"]) == (1, 0)


def test_every_line_is_a_message_and_a_wrong_one_is_named(served: Served, at: Mpreg) -> None:
    name = new_name()
    at("queue", "create", name, "--max-size", "2500")
    argv = [sys.executable, "-m", "mpreg", "queue", "send", name, "--json"]
    environment = {**ENVIRONMENT, "MPREG_URL": served.listeners["tcp"]}
    text = "".join(f"{n}\n" for n in range(2400))
    done = subprocess.run(argv, input=text, env=environment, capture_output=True, text=True, timeout=60)
    assert lines(done.stdout) == [{"queue_name": name, "sent": 2400}]
    done = subprocess.run(argv, input=text, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    error = json.loads(done.stderr.splitlines()[-1])["error"]
    assert (error["code"], error["message"].partition(":")[0]) == ("QUEUE_FULL", "line 101")
    (listed,) = lines(at("queue", "ls", name, "--json").out)
    assert listed["current_queue_size"] == 2500


def test_dead_letters_go_back(at: Mpreg) -> None:
    name = new_name()
    at("queue", "create", name, "--max-retries", "0")
    at("queue", "send", name, "poison")
    assert at("queue", "receive", name, "--keep").out == "poison\n"
    (dead,) = lines(at("queue", "peek", f"{name}.dlq", "--json").out)
    assert dead["why"]["reason"] == "looked at"
    done = lines(at("queue", "redrive", name, "--json").out)
    assert done == [{"queue_name": name, "redriven": 1, "left": 0}]
    assert lines(at("queue", "purge", name, "--json").out) == [{"queue_name": name, "would_remove": 1}]
    assert lines(at("queue", "purge", name, "--yes", "--json").out) == [{"queue_name": name, "removed": 1}]
    assert at("queue", "delete", name, "--yes").code == 0
    said = at("queue", "stats", name)
    assert (said.code, "QUEUE_NOT_FOUND" in said.err) == (1, True)


def test_a_queue_is_watched(at: Mpreg) -> None:
    name = new_name()
    at("queue", "create", name)
    at("queue", "send", name, "1")
    said = lines(at("queue", "watch", name, "--every", "0.1", "--count", "2", "--json").out)
    assert [one["current_queue_size"] for one in said] == [1, 1]


def test_schedules_come_and_go(at: Mpreg) -> None:
    name = new_name()
    made = lines(at("queue", "schedule", "add", "0 3 * * *", "reports", '{"a": 1}', "--name", name, "--json").out)[0]
    assert made["created"] is True
    (listed,) = [one for one in lines(at("queue", "schedule", "ls", "--json").out) if one["schedule_name"] == name]
    assert (listed["cron"], listed["queue_name"], listed["message_payload"]) == ("0 3 * * *", "reports", {"a": 1})
    assert at("queue", "schedule", "rm", name).code == 0
    assert at("queue", "schedule", "rm", name).code == 1
    said = at("queue", "schedule", "add", "61 * * * *", "reports", "1")
    assert (said.code, "minute" in said.err) == (1, True)


def test_the_queue_s_speed_is_measured(at: Mpreg) -> None:
    said = lines(at("bench", "queue", "--secs", "0.2", "--json").out)[0]
    assert said["messages"] > 0
    assert said["durability"] == "memory"


def test_wrong_usage(at: Mpreg) -> None:
    assert at("queue", "create", "q", "--type", "stack").code == 2
    assert at("queue", "send").code == 2
    assert at("queue", "send", "q", "1", "--guarantee", "never").code == 2
    assert at("queue", "send", "q", "1", "--header", "x").code == 2
