"""`mpreg lock` as a shell sees it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.store.servers import Server, eventually, valkey


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with valkey() as made:
        yield made


@pytest.fixture(autouse=True)
def _empty(server: Server) -> None:
    server.call("FLUSHALL")


def start(server: Server, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from mpreg.cli import main; main()", "lock", *arguments],
        env={**os.environ, "MPREG_STORE": server.url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(server: Server, *arguments: str) -> tuple[int, str, str]:
    process = start(server, *arguments)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_the_command_runs_under_the_lock_and_knows_its_fence(server: Server) -> None:
    look = 'echo "$MPREG_LOCK $MPREG_LOCK_FENCE"; exit 7'
    code, out, err = run(server, "backup:daily", "--", "sh", "-c", look)
    name, fence = out.split()
    assert (code, name, err) == (7, "backup:daily", "")
    assert server.call("GET", "{backup:daily}:fence") == fence.encode()
    assert server.call("EXISTS", "backup:daily") == 0


def test_options_of_the_command_are_its_own(server: Server) -> None:
    code, out, _ = run(server, "a", "--ttl", "5", "--", "echo", "--ttl", "x", "--show")
    assert (code, out) == (0, "--ttl x --show\n")


def test_a_lock_that_is_held_is_exit_code_one_and_a_message(server: Server) -> None:
    server.call("SET", "a", "worker 7:abc", "PX", 60_000)
    code, out, err = run(server, "a", "--", "echo", "never")
    assert (code, out) == (1, "")
    assert "held by worker 7" in err
    assert "Traceback" not in err


def test_it_waits_for_the_lock(server: Server) -> None:
    server.call("SET", "a", "worker 7:abc", "PX", 300)
    assert run(server, "a", "--wait", "30", "--", "echo", "mine")[:2] == (0, "mine\n")


def test_the_command_is_terminated_when_the_lock_is_lost(server: Server) -> None:
    process = start(
        server,
        "a",
        "--ttl",
        "0.6",
        "--",
        "sh",
        "-c",
        "trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.02; done",
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    assert server.call("DEL", "a") == 1
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "told\n")
    assert "STORE_LOCK_LOST" in err


def test_a_command_that_ignores_being_terminated_is_killed(server: Server) -> None:
    process = start(
        server, "a", "--ttl", "0.6", "--", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    server.call("DEL", "a")
    process.communicate(timeout=60)
    assert process.returncode == 1


def test_a_signal_is_the_commands_and_the_lock_is_given_back(server: Server) -> None:
    process = start(server, "a", "--", "sh", "-c", "trap 'exit 9' TERM; echo up; while :; do sleep 0.02; done")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 9
    assert server.call("EXISTS", "a") == 0


def test_a_command_ended_by_a_signal_is_told_as_shells_do(server: Server) -> None:
    assert run(server, "a", "--", "sh", "-c", "kill -KILL $$")[0] == 128 + 9


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
def test_the_command_does_not_outlive_a_lock_that_was_killed(server: Server) -> None:
    process = start(
        server,
        "a",
        "--ttl",
        "30",
        "--",
        sys.executable,
        "-c",
        "import os,time;print(os.getpid(),flush=True);time.sleep(60)",
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    process.kill()
    process.communicate(timeout=60)

    def gone() -> bool:
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return True
        return False

    eventually(gone, "the command has ended")


@pytest.mark.parametrize(("command", "code"), [("/no/such/command", 127), ("/etc/hostname", 126)])
def test_a_command_that_can_not_run(server: Server, command: str, code: int) -> None:
    got, _, err = run(server, "a", "--", command)
    assert got == code
    assert command in err
    assert server.call("EXISTS", "a") == 0


def test_show_says_who_holds_it_and_until_when(server: Server) -> None:
    assert run(server, "a", "--show")[:2] == (0, "a: free\n")
    server.call("SET", "a", "worker 7:abc", "PX", 60_000)
    server.call("SET", "{a}:fence", 5)
    code, out, _ = run(server, "a", "--show")
    assert code == 0
    assert out.startswith("a: held by worker 7, runs out in ")
    assert "  fence 5\n" in out
    view = json.loads(run(server, "a", "--show", "--json")[1])
    assert (view["held"], view["owner"], view["fence"], view["breaks"]) == (True, "worker 7", 5, [])


def test_break_takes_it_away_and_writes_down_why(server: Server) -> None:
    server.call("SET", "a", "worker 7:abc", "PX", 60_000)
    code, out, _ = run(server, "a", "--break", "it hangs", "--owner", "op")
    assert code == 0
    assert out.startswith("a: free\n")
    assert "by op, taken from worker 7:abc: it hangs" in out
    assert server.call("EXISTS", "a") == 0


@pytest.mark.parametrize("arguments", [("a",), ("a", "--show", "--", "echo"), ("a", "--ttl", "x", "--", "echo")])
def test_wrong_usage_is_exit_code_two(server: Server, arguments: tuple[str, ...]) -> None:
    assert run(server, *arguments)[0] == 2


@pytest.mark.parametrize("arguments", [("--ttl", "0"), ("--wait", "-1"), ("--owner", "a\nb")])
def test_options_out_of_range_are_refused_by_name(server: Server, arguments: tuple[str, ...]) -> None:
    code, _, err = run(server, "a", *arguments, "--", "echo")
    assert code == 1
    assert "STORE_INVALID_OPTION" in err
