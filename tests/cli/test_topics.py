"""`mpreg publish`, `subscribe`, `topics`, `bench pubsub`: what scripts and people rely on, as real processes."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Mpreg, Said
from tests.conformance.served import Served
from tests.node.processes import ENVIRONMENT, MPREG

numbers = count(1)


@pytest.fixture
def name() -> str:
    """A first level that no other test uses."""
    return f"cli{next(numbers)}"


class Subscribing:
    """`mpreg subscribe`, which has begun."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        assert process.stderr is not None
        self.out, self.err = process.stdout, process.stderr
        assert self.err.readline().startswith("subscribed to ")

    def line(self) -> str:
        return self.out.readline().rstrip("\n")

    def ended(self) -> Said:
        out, err = self.process.communicate(timeout=30)
        return Said(self.process.returncode, out, err)


class Shell:
    """Commands for one node, some of which run while others do."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder

    def start(self, *args: str, **more: Any) -> subprocess.Popen[str]:
        env = {**ENVIRONMENT, "COLUMNS": "200", "MPREG_URL": self.url}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*MPREG, *args], cwd=self.folder, env=env, text=True, stdin=pipe, stdout=pipe, stderr=pipe, **more
        )

    def __call__(self, *args: str, stdin: str | bytes = "") -> Said:
        process = self.start(*args)
        if isinstance(stdin, bytes):
            assert process.stdin is not None
            process.stdin.buffer.write(stdin)
            stdin = ""
        out, err = process.communicate(stdin, timeout=60)
        return Said(process.returncode, out, err)

    @contextlib.contextmanager
    def subscribing(self, *args: str) -> Iterator[Subscribing]:
        process = self.start("subscribe", *args)
        try:
            yield Subscribing(process)
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def shell(served: Served, tmp_path: Path) -> Shell:
    return Shell(served.listeners["tcp"], tmp_path)


def test_what_is_published_is_shown(shell: Shell, name: str) -> None:
    with shell.subscribing(f"{name}.#", "--count", "5") as subscribing:
        assert shell("publish", f"{name}.a", '{"x": [1, "é"]}') == Said(0, "", "")
        assert shell("publish", f"{name}.b", "plain text").code == 0
        assert shell("publish", f"{name}.b", "7", "--text").code == 0
        assert shell("publish", f"{name}.b", "7", "--header", "n=1", "--header", "t=x", "--reply-to", "back").code == 0
        assert shell("publish", name, "\x1b[31mred\nnext").code == 0
        said = subscribing.ended()
    assert said.code == 0
    assert said.out.splitlines() == [
        f'{name}.a {{"x": ["x", "é"]}}'.replace('["x", ', "[1, "),
        f"{name}.b plain text",
        f"{name}.b 7",
        f"{name}.b 7",
        rf"{name} \x1b[31mred\nnext",
    ], "nothing in it commands the terminal"


def test_with_json_all_is_told_and_the_backlog_comes_first(shell: Shell, name: str) -> None:
    shell("publish", f"{name}.old", "1")
    with shell.subscribing(f"{name}.*", "other", "--json", "--backlog", "60") as subscribing:
        shell("publish", f"{name}.new", '"1"', "--header", "n=1", "--reply-to", "back")
        old, new = json.loads(subscribing.line()), json.loads(subscribing.line())
        subscribing.process.send_signal(signal.SIGINT)
        assert subscribing.ended() == Said(0, "", "")
    assert (old["topic"], old["payload"], old["backlog"]) == (f"{name}.old", 1, True)
    assert (new["topic"], new["payload"], new["backlog"]) == (f"{name}.new", "1", False)
    assert (new["headers"], new["reply_to"]) == ({"n": 1}, "back")
    assert new["message_id"]
    assert new["publisher"]
    assert new["timestamp"] > 1e9


def test_every_line_of_stdin_is_a_message_in_order(shell: Shell, name: str) -> None:
    lines = [json.dumps({"n": number}) for number in range(2_000)]
    with shell.subscribing(name, "--count", "2000") as subscribing:
        reading: list[str] = []
        reader = threading.Thread(target=lambda: reading.extend(subscribing.line() for _ in lines))
        reader.start()
        said = shell("publish", name, stdin="\n".join(lines))
        reader.join(60)
    assert (said.code, said.out) == (0, "")
    assert "2,000 messages published" in said.err
    assert reading == [f"{name} {line}" for line in lines]


def test_lines_are_published_as_they_come(shell: Shell, name: str) -> None:
    with shell.subscribing(name) as subscribing:
        publishing = shell.start("publish", name, "-", "--json")
        assert publishing.stdin is not None
        for line in ("first", "", "third"):
            publishing.stdin.write(f"{line}\r\n")
            publishing.stdin.flush()
            assert subscribing.line() == f"{name} {line}"
        out, _ = publishing.communicate("last", timeout=30)
        assert subscribing.line() == f"{name} last"
    assert publishing.returncode == 0
    assert json.loads(out) | {"seconds": 0} == {"topic": name, "published": 4, "seconds": 0}


def test_what_fails_is_told_at_once_though_more_lines_may_come(shell: Shell) -> None:
    publishing = shell.start("publish", "a.*")
    assert publishing.stdin is not None
    assert publishing.stderr is not None
    publishing.stdin.write("first\n")
    publishing.stdin.flush()
    assert publishing.wait(30) == 1
    said = publishing.stderr.read()
    assert "0 messages were published" in said
    assert "line 1: " in said
    assert "PUBSUB_INVALID_TOPIC" in said
    publishing.communicate()


def test_a_rate_is_kept(shell: Shell, name: str) -> None:
    said = shell("publish", name, "--rate", "50", "--json", stdin="x\n" * 21)
    assert json.loads(said.out)["published"] == 21
    assert json.loads(said.out)["seconds"] >= 0.4


@pytest.mark.parametrize(
    ("args", "stdin", "code", "said"),
    [
        (("publish", "a.*", "1"), "", 1, "PUBSUB_INVALID_TOPIC"),
        (("publish", "a", "1", "--reply-to", "b..c"), "", 1, "PUBSUB_INVALID_TOPIC"),
        (("publish", "a.*"), "x\ny\n", 1, "line 1: "),
        (("publish", "a"), b"x\n\xff\n", 1, "line 2 of stdin is not valid UTF-8"),
        (("publish", "a", "1", "--header", "x"), "", 2, "NAME=VALUE"),
        (("publish", "a", "1", "--header", "x=1", "--header", "x=2"), "", 2, "given twice"),
        (("publish", "a", "--rate", "0"), "", 2, "--rate"),
        (("publish",), "", 2, "TOPIC"),
        (("subscribe", "a..b"), "", 1, "PUBSUB_INVALID_PATTERN"),
        (("subscribe",), "", 2, "PATTERNS"),
        (("subscribe", "a", "--backlog", "-1"), "", 2, "--backlog"),
        (("subscribe", "a", "--count", "0"), "", 2, "--count"),
        (("topics", "a..b"), "", 1, "PUBSUB_INVALID_PATTERN"),
        (("topics", "--interval", "0"), "", 2, "--interval"),
        (("bench", "pubsub", "--size", "7"), "", 2, "--size"),
    ],
)
def test_what_is_wrong_is_one_line_and_an_exit_code(
    shell: Shell, args: tuple[str, ...], stdin: str | bytes, code: int, said: str
) -> None:
    found = shell(*args, stdin=stdin)
    assert (found.code, found.out) == (code, "")
    assert said in found.err
    assert "Traceback" not in found.err


def test_errors_are_json_for_programs(shell: Shell) -> None:
    error = json.loads(shell("publish", "a.*", "1", "--json").err)["error"]
    assert error["code"] == "PUBSUB_INVALID_TOPIC"
    assert error["details"]["field"] == "topic"


def test_a_timeout_fails_only_if_a_count_was_asked_for(shell: Shell, name: str) -> None:
    found = shell("subscribe", name, "--count", "3", "--timeout", "0.2")
    assert found.code == 1
    assert "0 of 3 messages came within 0.2 s" in found.err
    assert shell("subscribe", name, "--timeout", "0.2").code == 0


def test_who_reads_may_have_had_enough(shell: Shell, name: str) -> None:
    with shell.subscribing(name) as subscribing:
        subscribing.out.close()
        shell("publish", name, "1")
        subscribing.process.wait(30)
        assert subscribing.process.returncode == 0
        assert "Traceback" not in subscribing.err.read()


def test_rates_are_shown_by_prefix(shell: Shell, name: str) -> None:
    publishing = shell.start("publish", f"{name}.a.x", "--rate", "50")
    try:
        assert publishing.stdin is not None
        publishing.stdin.write("12345\n" * 5_000)
        publishing.stdin.flush()
        with shell.subscribing(f"{name}.#", "--count", "1") as subscribing:
            subscribing.ended()
        said = shell("topics", f"{name}.#", "--depth", "2", "--json", "--count", "2")
    finally:
        publishing.kill()
        publishing.communicate()
    for line in said.out.splitlines():
        (row,) = json.loads(line)["topics"]
        assert row["topic"] == f"{name}.a.#"
        assert row["bytes"] == pytest.approx(5 * row["messages"], rel=0.1)
    assert len(said.out.splitlines()) == 2


def test_for_people_rates_are_a_table_with_a_total(shell: Shell, name: str) -> None:
    found = shell("topics", f"{name}.#", "--interval", "0.1")
    assert found.code == 0
    assert found.out.split() == ["topic", "messages/s", "bytes/s", "total", "0.0", "0", "B"]


def test_bench_measures_throughput_and_latency(at: Mpreg) -> None:
    said = at("bench", "pubsub", "--secs", "0.1", "--subscribers", "3", "--json")
    figures = [json.loads(line) for line in said.out.splitlines()]
    assert [(each["case"], each["metric"], each["unit"]) for each in figures] == [
        ("flood", "published", "1/s"),
        ("flood", "delivered", "1/s"),
        ("flood", "lost", "%"),
        ("half of it", "published", "1/s"),
        ("half of it", "p50", "us"),
        ("half of it", "p99", "us"),
    ]
    assert figures[2]["value"] == 0
    table = at("bench", "pubsub", "--secs", "0.1")
    assert "100 bytes, 1 publisher, 1 subscriber" in table.out
