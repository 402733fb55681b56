"""The commands as people and programs use them: output, exit codes, errors."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.keyspace.tools.poppo_store import KEYS, PROCESS, fill
from tests.store.servers import StoreServers

from mpreg.cli import cli
from mpreg.cli.keys import SUBCOMMANDS
from mpreg.cli.keys_own import own_modules
from mpreg.cli.keys_tree import draw
from mpreg.errors import KeyspaceError, StoreError
from mpreg.keyspace import Keyspace
from mpreg.store import connect

Keys = Callable[..., Result]
SCHEMA = "examples/poppo_keys.py"


def call(servers: StoreServers, *command: Any) -> None:
    """Another program writes."""

    async def run() -> None:
        async with await connect(servers.url) as store:
            await store.command(*command)

    asyncio.run(run())


@pytest.fixture
def keys(store_servers: StoreServers) -> Keys:
    def run(*args: str, schema: str = SCHEMA) -> Result:
        return CliRunner().invoke(cli, ["keys", "--store", store_servers.url, "--schema", schema, *args])

    return run


@pytest.fixture
def filled(store_servers: StoreServers) -> StoreServers:
    async def run() -> None:
        async with await connect(store_servers.url) as store:
            await fill(store)

    asyncio.run(run())
    return store_servers


def answer(result: Result, exit_code: int = 0) -> Any:
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def test_ls_draws_the_families_as_a_tree(keys: Keys, filled: StoreServers) -> None:
    result = keys("ls")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[-1] == f"{KEYS} keys"
    assert any(re.match(r"\W*issue:\s*$", line) for line in lines), result.stdout
    status = next(line for line in lines if "status:{issue:int}" in line)
    assert re.search(r"hash +3 +[0-9.]+ (B|KiB) +– +3$", status), status
    assert "flags" not in result.stdout, "families without a key are left out"


def test_ls_for_programs(keys: Keys, filled: StoreServers) -> None:
    call(filled, "SET", b"poppo:\xff", "x")
    found = answer(keys("ls", "--json"))
    assert found["scanned"] == KEYS + 1
    families = {one["family"]: one for one in found["families"]}
    lock = families["poppo/lock:issue"]
    assert (lock["keys"], lock["without_ttl"], lock["memory_error_bytes"]) == (1, 0, 0)
    assert 0 < lock["ttl_ms"]["median"] <= 300_000
    assert families["(unknown)"]["keys"] == 1


def test_ls_lists_keys_up_to_a_limit(keys: Keys, filled: StoreServers) -> None:
    found = answer(keys("ls", "--keys", "--family", "issue:status", "--json"))
    assert sorted(one["key"] for one in found["keys"]) == [f"poppo:issue:status:{n}" for n in (123, 124, 125)]
    assert found["more"] is False
    assert len(answer(keys("ls", "--keys", "--max", "2", "--json"))["keys"]) == 2
    assert "there are more" in keys("ls", "--keys", "--max", "2").stdout


def test_get_decodes_a_key(keys: Keys, filled: StoreServers) -> None:
    found = answer(keys("get", "poppo:issue:status:123", "--json"))
    assert (found["family"], found["values"]) == ("poppo/issue:status", {"issue": 123})
    assert found["value"]["processId"] == PROCESS
    assert found["fault"] is None
    text = keys("get", "poppo:issue:metadata:123").stdout
    assert "日本" in text
    assert "poppo/issue:metadata with issue = 123" in text


def test_get_of_any_bytes(keys: Keys, filled: StoreServers) -> None:
    call(filled, "SET", b"\xff\n", b"\x00")
    found = answer(keys("get", "--base64", "/wo=", "--json"))
    assert (found["key_base64"], found["value"]) == ("/wo=", "\x00")
    shown = keys("get", "--base64", "/wo=").stdout.splitlines()
    assert shown[:2] == ["\\xff\\n", "  not declared"]
    assert keys("get", "--base64", "!").exit_code == 2


def test_get_says_what_is_wrong_with_a_key(keys: Keys, filled: StoreServers) -> None:
    call(filled, "SET", "poppo:issues:processing:x", "y")
    call(filled, "DEL", "poppo:issues:processing")
    call(filled, "SET", "poppo:issues:processing", "text")
    assert "but declared as set" in keys("get", "poppo:issues:processing").stdout
    call(filled, "SET", "poppo:task:result:t", "{")
    assert "can't be decoded" in keys("get", "poppo:task:result:t").stdout
    assert keys("get", "poppo:nothing").exit_code == 1


def test_find_shows_what_belongs_to_an_issue(keys: Keys, filled: StoreServers) -> None:
    found = answer(keys("find", "issue 123", "--json"))
    names = {one["key"] for one in found["keys"]}
    assert {"poppo:issue:status:123", f"poppo:process:heartbeat:{PROCESS}", "poppo:issues:processing"} <= names
    assert all(one["exists"] for one in found["keys"])
    text = keys("find", "issue", "123", "--absent").stdout
    assert "poppo:lock:issue:123  (string, expires in" in text
    assert keys("find", "issue", "9").exit_code == 1


def test_lint_is_quiet_when_all_is_well_and_fails_when_not(keys: Keys, filled: StoreServers) -> None:
    assert keys("lint").stdout == f"{KEYS} keys checked, no findings\n"
    call(filled, "SET", "poppo:lock:backup:daily", "x")
    call(filled, "SET", b"poppo:\xff", "x")
    found = answer(keys("lint", "--json"), exit_code=1)
    assert found["counts"] == {"lock-without-ttl": 1, "unknown-key": 1}
    assert {one["rule"]: one["key"] for one in found["findings"]} == {
        "lock-without-ttl": "poppo:lock:backup:daily",
        "unknown-key": "poppo:\\xff",
    }
    text = keys("lint", "--ignore", "*daily")
    assert text.exit_code == 1
    assert "unknown-key (1)" in text.stdout
    assert "lock-without-ttl" not in text.stdout
    assert keys("lint", "--rule", "dangling").exit_code == 0


def test_stats_states_its_error(keys: Keys, filled: StoreServers) -> None:
    for number in range(50):
        call(filled, "SET", f"poppo:flags:{number}", "x" * number * 10)
    found = answer(keys("stats", "--sample", "10", "--json"))
    flags = next(one for one in found["families"] if one["family"] == "poppo/flags")
    assert (flags["keys"], flags["sampled"]) == (50, 10)
    assert 0 < flags["error_bytes"] < flags["memory_bytes"]
    text = keys("stats").stdout
    assert "± 95 %" in text
    assert "exact" in text


def test_docs_need_no_store_and_make_a_schema_that_the_tools_read(
    keys: Keys, filled: StoreServers, tmp_path: Path
) -> None:
    page = CliRunner().invoke(cli, ["keys", "docs", "--schema", SCHEMA])
    assert page.stdout.startswith("# Keys of poppo\n")
    file = tmp_path / "schema.json"
    file.write_text(CliRunner().invoke(cli, ["keys", "docs", "--schema", SCHEMA, "--json"]).stdout)
    assert keys("lint", schema=str(file)).stdout == f"{KEYS} keys checked, no findings\n"
    assert answer(keys("get", "poppo:issue:status:123", "--json", schema=str(file)))["value"]["status"] == "processing"


def test_what_was_not_said_is_asked_for(keys: Keys) -> None:
    result = CliRunner().invoke(cli, ["keys", "ls", "--schema", SCHEMA])
    assert result.exit_code == 2
    assert "--store" in result.output
    assert keys("nothing").exit_code == 2
    wrong = keys("ls", "--family", "nothing")
    assert isinstance(wrong.exception, KeyspaceError)
    assert wrong.exception.code == "KEYSPACE_INVALID_QUERY"
    down = CliRunner().invoke(cli, ["keys", "ls", "--schema", SCHEMA, "--store", "unix:///nowhere/at.all"])
    assert isinstance(down.exception, StoreError)


def test_the_list_of_commands_needs_none_of_them() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from mpreg.cli.keys import keys; "
        "print(CliRunner().invoke(keys, ['--help']).output); "
        "print([m for m in sys.modules if m.startswith('mpreg.cli.keys_') or m.startswith('mpreg.keyspace')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *page, loaded = done.stdout.strip().splitlines()
    assert loaded == "['mpreg.cli.keys_options']"
    for name in SUBCOMMANDS:
        assert any(re.search(rf"\W{name}\W", line) for line in page), name


def test_watch_prints_changes_as_they_happen(filled: StoreServers) -> None:
    command = [sys.executable, "-c", "from mpreg.cli import main; main()", "keys", "watch", "--json", "--values"]
    options = ["--store", filled.url, "--schema", SCHEMA, "--count", "2", "--event", "set", "--event", "expired"]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path.cwd()
    ) as watch:
        try:
            assert watch.stderr is not None
            assert watch.stdout is not None
            assert watch.stderr.readline() == "watching\n"
            call(filled, "SET", "poppo:flags:a", "on", "PX", 40)
            first, second = json.loads(watch.stdout.readline()), json.loads(watch.stdout.readline())
            assert watch.wait(20) == 0
        finally:
            watch.kill()
    assert (first["event"], first["key"], first["family"]) == ("set", "poppo:flags:a", "poppo/flags")
    assert (second["event"], second["key"]) == ("expired", "poppo:flags:a")


def test_a_tree_shares_trunks() -> None:
    named = [("a:b:c", ":", 1), ("a:b:d:{x:int}", ":", 2), ("a:b", ":", 3), ("z", ":", 4)]
    assert draw(named) == [("a:", None), ("├ b:", None), ("│ ├ c", 1), ("│ └ d:{x:int}", 2), ("└ b", 3), ("z", 4)]


def test_nothing_in_the_store_reaches_the_terminal_as_a_command(keys: Keys, filled: StoreServers) -> None:
    evil = "\x1b[2J\x9b31m\n"
    call(filled, "HSET", "poppo:issue:metadata:5", f"name{evil}", f"value{evil}")
    call(filled, "HSET", "poppo:issue:status:5", "status", evil)
    call(filled, "RPUSH", "poppo:queue:low", f"task-{evil}")
    call(filled, "SET", f"poppo:unknown{evil}", evil)
    outputs = [
        keys("ls", "--keys"),
        keys("get", "poppo:issue:metadata:5"),
        keys("get", "poppo:issue:status:5"),
        keys("get", f"poppo:unknown{evil}"),
        keys("find", "issue 5"),
        keys("lint"),
        keys("stats"),
    ]
    for result in outputs:
        assert isinstance(result.exception, SystemExit | None), result.exception
        assert len(result.stdout) > 20
        assert all(character.isprintable() or character == "\n" for character in result.stdout), result.stdout


def test_all_keys_of_mpreg_itself_fit_together(store_servers: StoreServers) -> None:
    own = CliRunner().invoke(cli, ["keys", "ls", "--store", store_servers.url, "--json"])
    assert answer(own) == {"scanned": 0, "families": []}
    page = CliRunner().invoke(cli, ["keys", "docs"]).stdout
    for module in own_modules():
        for name in vars(importlib.import_module(module)).values():
            if isinstance(name, Keyspace):
                assert f"# Keys of {name.name}" in page
