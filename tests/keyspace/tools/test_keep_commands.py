"""`mpreg keys backup, restore, purge, ttl` as people and programs run them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.keyspace.tools.command_line import CommandLine
from tests.store.servers import Connection, Server, StoreServers, eventually, redis7, valkey

from mpreg.store import connect

Dumps = dict[bytes, tuple[bytes, int]]


@pytest.fixture(scope="module")
def _server() -> Iterator[Server]:
    with valkey() as server:
        yield server


@pytest.fixture
def server(_server: Server) -> Server:
    _server.call("FLUSHALL")
    return _server


@pytest.fixture
def keys(server: Server, tmp_path: Path) -> CommandLine:
    return CommandLine(server.url, tmp_path)


def fill(server: Server, count: int, family: str = "temp") -> None:
    script = "for i=1,ARGV[1] do redis.call('SET', KEYS[1]..i, 'value '..i, 'PXAT', 4000000000000+i) end"
    server.call("EVAL", script, 1, f"app:{family}:", count)


def dumps(server: Server) -> Dumps:
    cursor, found = b"0", {}
    with Connection(server) as connection:
        while True:
            cursor, page = connection.call("SCAN", cursor, "COUNT", 1000)
            for key in page:
                connection.send("DUMP", key)
                connection.send("PEXPIRETIME", key)
            found.update({key: (connection.receive(), connection.receive()) for key in page})
            if cursor == b"0":
                return found


def test_backup_purge_undo_and_restore(server: Server, keys: CommandLine) -> None:
    fill(server, 1_500)
    server.call("SET", b"app:temp:\x00\xff\n odd", b"\x00")
    server.call("SET", b"app:lock:a", b"me")
    before = dumps(server)

    backup = keys.run("backup", "b.jsonl.gz", "--json")
    assert backup.json == {
        "file": "b.jsonl.gz",
        "keys": 1_502,
        "gone": 0,
        "payload_bytes": backup.json["payload_bytes"],
    }
    assert keys.run("restore", "b.jsonl.gz", "--check").returncode == 0

    look = keys.run("purge", "app:*")
    assert look.returncode == 0
    assert b"1501 of 1502 keys to delete" in look.stdout
    assert b"app/lock is protected" in look.stdout
    assert b"add --yes" in look.stdout
    assert dumps(server) == before

    purge = keys.run("purge", "app:*", "--yes", "--json")
    assert purge.json["purged"] == {"deleted": 1_501, "gone": 0, "changed": 0}
    assert set(dumps(server)) == {b"app:lock:a"}
    undo = purge.json["undo"]
    assert (keys.directory / undo).exists()

    assert keys.run("restore", undo, "--json").json["restored"] == 1_501
    assert dumps(server) == before
    server.call("FLUSHALL")
    assert keys.run("restore", "b.jsonl.gz", "--json").json["restored"] == 1_502
    assert dumps(server) == before


def test_a_backup_goes_through_a_pipe_to_another_server(server: Server, keys: CommandLine, tmp_path: Path) -> None:
    fill(server, 100)
    with redis7() as old, valkey() as new:
        fill(old, 100)
        (tmp_path / "old").mkdir()
        (tmp_path / "new").mkdir()
        piped = CommandLine(old.url, tmp_path / "old").run("backup", "-", "--pattern", "app:temp:1*")
        assert piped.returncode == 0
        done = CommandLine(new.url, tmp_path / "new").run("restore", "-", "--json", stdin=piped.stdout)
        assert done.json["restored"] == 12
        expiries = {key: expiry for key, (_, expiry) in dumps(old).items() if key.startswith(b"app:temp:1")}
        assert {key: expiry for key, (_, expiry) in dumps(new).items()} == expiries
        # And the other way round: an older server can't read what the newer one wrote, and says so.
        newer = CommandLine(new.url, tmp_path / "new").run("backup", "-").stdout
        refused = CommandLine(old.url, tmp_path / "old").run("restore", "-", "--json", stdin=newer)
        assert refused.returncode == 1
        assert refused.error["code"] == "KEYSPACE_BACKUP_VERSION"
        assert len(dumps(old)) == 100


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["purge", "*", "--yes"], 1, "matches keys of every root"),
        (["purge", "", "--yes"], 1, "empty pattern"),
        (["purge", "other:*", "--yes"], 1, "beyond what is declared"),
        (["purge", "--yes"], 2, "Give a PATTERN or --family"),
        (["purge", "app:*", "--where", "mood = good"], 1, "mood"),
        (["purge", "app:*", "--yes", "--max", "2"], 1, "at most 2"),
        (["purge", "--family", "nothing"], 1, "no family is called"),
        (["purge", "app:*", "--undo", "x", "--no-undo"], 2, "contradict"),
        (["purge", "app:*", "--include-protected", "nothing"], 1, "no family is called"),
        (["backup", "/nowhere/b", "--family", "temp"], 1, "can't be written"),
        (["backup", "schema.py"], 1, "exists already"),
        (["restore", "nothing.jsonl"], 1, "No such file"),
        (["restore", "schema.py"], 1, "line 1"),
        (["restore", "-", "--resume"], 2, "can't be resumed"),
        (["ttl", "--family", "nothing"], 1, "no family is called"),
    ],
)
def test_bad_input_says_what_is_wrong_and_changes_nothing(
    server: Server, keys: CommandLine, args: list[str], code: int, said: str
) -> None:
    fill(server, 3)
    before = dumps(server)
    ran = keys.run(args[0], *args[1:])
    assert ran.returncode == code
    assert said in " ".join(ran.stderr.decode().replace("│", " ").split())
    assert dumps(server) == before
    assert set(os.listdir(keys.directory)) <= {"schema.py", "__pycache__"}, "no file is left either"


def test_a_wrong_address_is_an_error_of_one_line(tmp_path: Path) -> None:
    ran = CommandLine("unix:///nowhere/s.sock", tmp_path).run("backup", "b.jsonl")
    assert ran.returncode == 1
    assert len(ran.stderr.splitlines()) == 1
    assert "STORE_" in ran.stderr.decode()
    assert not (tmp_path / "b.jsonl").exists()


def test_embedded_names_the_directory_of_a_store_that_runs(tmp_path: Path) -> None:
    with valkey() as server:
        store = tmp_path / "data" / "store"
        store.mkdir(parents=True)
        (store / "owner.lock").write_text(json.dumps({"pid": server.pid, "host": "here", "url": server.url}))
        server.call("SET", "app:temp:x", 1)
        assert CommandLine("embedded:data", tmp_path).run("ls", "--json").json["scanned"] == 1
    for url in ("embedded:data", "embedded:", "embedded:nowhere"):
        ran = CommandLine(url, tmp_path).run("ls")
        assert ran.returncode == 1
        assert f"no store runs on {tmp_path}/{url.removeprefix('embedded:') or 'mpreg-data'}" in ran.stderr.decode()


def test_a_reader_who_goes_away_is_no_traceback(server: Server, keys: CommandLine) -> None:
    fill(server, 5_000)
    with keys.start("backup", "-") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        said = process.stderr.read().decode()
    assert process.returncode == 1
    assert said.startswith("mpreg: stdout can't be written: Broken pipe")
    assert len(said.splitlines()) == 1


def test_people_see_a_progress_bar(server: Server, keys: CommandLine) -> None:
    fill(server, 100)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        keys.arguments("backup", "b.jsonl"), cwd=keys.directory, stdout=subprocess.PIPE, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b"".join(terminal(ours))
        said, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0
    assert b"100/100" in shown
    assert b"100 keys" in said


def terminal(ours: int) -> Iterator[bytes]:
    """What is shown until the other side is closed, which Linux reports as an error."""
    with contextlib.suppress(OSError):
        while data := os.read(ours, 4096):
            yield data


def test_a_read_only_replica_is_named_and_nothing_is_lost(server: Server, keys: CommandLine, tmp_path: Path) -> None:
    fill(server, 10)
    server.call("SET", "app:temp:endless", "x")
    assert keys.run("backup", "b.jsonl").returncode == 0
    with valkey(tcp=True, options=["--repl-diskless-sync-delay", "0"]) as primary, valkey() as replica:
        primary.call("SET", "app:temp:other", "x")
        replica.call("REPLICAOF", "127.0.0.1", primary.port)
        eventually(lambda: replica.info()["master_link_status"] == "up", "the replica is in step")
        on = CommandLine(replica.url, tmp_path)
        restored = on.run("restore", "b.jsonl", "--json")
        purged = on.run("purge", "app:*", "--yes", "--undo", "u.jsonl", "--json")
        fixed = on.run("ttl", "--fix", "--json")
        assert [ran.returncode for ran in (restored, purged, fixed)] == [1, 1, 1]
        assert restored.error["code"] == "STORE_READ_ONLY"
        assert purged.error["code"] == "KEYSPACE_PURGE_FAILED"
        assert (purged.error["details"]["deleted"], purged.error["details"]["cause"]) == (0, "STORE_READ_ONLY")
        assert fixed.error["code"] == "STORE_READ_ONLY"
        assert set(dumps(replica)) == {b"app:temp:other"}


def test_ttl_is_an_exit_code_for_programs(server: Server, keys: CommandLine) -> None:
    server.call("SET", "app:temp:a", "x")
    found = keys.run("ttl", "--json")
    assert found.returncode == 1
    assert found.json["families"]["app/temp"]["missing"] == 1
    assert server.call("PTTL", "app:temp:a") == -1
    assert b"--fix" in keys.run("ttl").stdout
    fixed = keys.run("ttl", "--fix", "--json")
    assert fixed.returncode == 0
    assert fixed.json["families"]["app/temp"]["fixed"] == 1
    assert 0 < server.call("PTTL", "app:temp:a") <= 60_000


def test_an_edited_backup_names_its_line(server: Server, keys: CommandLine) -> None:
    fill(server, 10)
    keys.run("backup", "b.jsonl")
    server.call("FLUSHALL")
    path = keys.directory / "b.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"string"', b'"strinG"')
    path.write_bytes(b"".join(lines))
    ran = keys.run("restore", "b.jsonl", "--json")
    assert (ran.returncode, ran.error["code"]) == (1, "KEYSPACE_BACKUP_CORRUPT")
    assert ran.error["details"] == {"file": "b.jsonl", "line": 4}
    assert server.call("DBSIZE") == 0


# --- kill -9 ---------------------------------------------------------------------------------------------------------


def killed(process: subprocess.Popen[bytes]) -> bytes:
    """SIGKILL in the middle of its work; what it had said on stderr."""
    assert process.poll() is None, process.communicate()
    process.kill()
    return process.communicate()[1]


@pytest.mark.parametrize("mode", ["fail", "replace", "skip"])
def test_a_killed_restore_goes_on_where_it_was(server: Server, keys: CommandLine, mode: str) -> None:
    fill(server, 3_000)
    before = dumps(server)
    assert keys.run("backup", "b.jsonl").returncode == 0
    server.call("FLUSHALL")
    process = keys.start("restore", "b.jsonl", "--on-existing", mode, "--rate", "500")
    eventually(lambda: server.call("DBSIZE") > 0, "the restore has begun")
    killed(process)
    written = server.call("DBSIZE")
    assert 0 < written < 3_000
    if mode == "fail":
        again = keys.run("restore", "b.jsonl", "--json")
        assert again.error["code"] == "KEYSPACE_RESTORE_EXISTS"
    resumed = keys.run("restore", "b.jsonl", "--on-existing", mode, "--resume", "--json").json
    assert resumed["resumed_at"] + resumed["restored"] + resumed["same"] == 3_000
    assert resumed["restored"] == 3_000 - written
    assert dumps(server) == before
    assert sorted(path.name for path in keys.directory.glob("b.*")) == ["b.jsonl"]


def test_a_killed_backup_leaves_no_file_under_its_name(server: Server, keys: CommandLine) -> None:
    fill(server, 3_000)
    process = keys.start("backup", "b.jsonl", "--rate", "500")
    eventually(lambda: bool(list(keys.directory.glob("*.part"))), "the backup has begun")
    killed(process)
    assert not (keys.directory / "b.jsonl").exists()


def test_a_killed_purge_is_undone_by_its_undo_backup(server: Server, keys: CommandLine) -> None:
    fill(server, 1_500)
    before = dumps(server)
    process = keys.start("purge", "app:temp:*", "--yes", "--rate", "1000", "--undo", "undo.jsonl")
    eventually(lambda: server.call("DBSIZE") < 1_500, "the purge has begun", timeout_s=30)
    said = killed(process)
    assert b"mpreg keys restore undo.jsonl" in said
    assert 0 < server.call("DBSIZE") < 1_500
    restored = keys.run("restore", "undo.jsonl", "--on-existing", "skip", "--json").json
    assert restored["restored"] + restored["same"] == 1_500
    assert dumps(server) == before


# --- scale -----------------------------------------------------------------------------------------------------------


def test_no_command_is_of_a_kind_that_reads_or_deletes_everything(keys: CommandLine, tmp_path: Path) -> None:
    with valkey() as server:
        fill(server, 2_000)
        server.call("CONFIG", "RESETSTAT")
        on = CommandLine(server.url, tmp_path)
        for args in (
            ["backup", "b.jsonl"],
            ["purge", "app:*", "--yes", "--undo", "u.jsonl"],
            ["restore", "b.jsonl"],
            ["purge", "app:*", "--yes", "--no-undo", "--where", "idle >= 0"],
            ["restore", "u.jsonl", "--on-existing", "replace"],
            ["ttl", "--fix"],
        ):
            assert on.run(args[0], *args[1:]).returncode == (1 if args[0] == "ttl" else 0), args
        used = {name.removeprefix("cmdstat_") for name in server.info("commandstats")}
    assert used >= {"scan", "unlink", "restore", "dump", "evalsha"}
    assert not used & {"keys", "flushall", "flushdb", "del", "smembers", "hgetall", "lrange", "sort"}


@pytest.mark.slow
def test_a_hundred_thousand_keys_and_no_command_that_takes_long(tmp_path: Path) -> None:
    """Commands are timed by the server. One that is interrupted by the machine may take long, but not the typical one:
    a command that grows with the number of keys would be long each time."""
    with valkey() as server:
        for start in range(0, 100_000, 5_000):
            script = "for i=ARGV[1],ARGV[1]+4999 do redis.call('SET', KEYS[1]..i, 'value', 'EX', 1000000) end"
            server.call("EVAL", script, 1, "app:temp:", start)
        before = dumps(server)
        server.call("CONFIG", "RESETSTAT")
        keys = CommandLine(server.url, tmp_path)
        assert keys.run("backup", "b.jsonl", "--json").json["keys"] == 100_000
        purged = keys.run("purge", "app:*", "--yes", "--max", "100000", "--rate", "1000000", "--json").json["purged"]
        assert purged == {"deleted": 100_000, "gone": 0, "changed": 0}
        assert server.call("DBSIZE") == 0
        assert keys.run("restore", "b.jsonl", "--json").json["restored"] == 100_000
        assert keys.run("ttl", "--fix", "--json").json["families"]["app/temp"]["too_long"] == 100_000
        latency = server.info("latencystats")
        used = {name.removeprefix("cmdstat_") for name in server.info("commandstats")}
        assert dumps(server) == before
    assert not used & {"keys", "flushall", "flushdb", "del"}
    assert "latency_percentiles_usec_scan" in latency
    for name, percentiles in latency.items():
        typical = float(percentiles.split(",")[0].partition("=")[2])
        assert typical < 10_000, name


async def fill_anywhere(url: str, count: int) -> None:
    async with await connect(url) as store:
        for n in range(count):
            await store.command("SET", f"app:temp:{n}", f"value {n}", "PXAT", 4_000_000_000_000 + n)


def test_the_command_line_works_on_every_primary(store_servers: StoreServers, tmp_path: Path) -> None:
    asyncio.run(fill_anywhere(store_servers.url, 500))
    before = [dumps(server) for server in store_servers.primaries]
    assert all(before), "every primary holds some"
    keys = CommandLine(store_servers.url, tmp_path)
    assert keys.run("backup", "b.jsonl", "--json").json["keys"] == 500
    assert keys.run("purge", "app:*", "--yes", "--json").json["purged"]["deleted"] == 500
    assert [dumps(server) for server in store_servers.primaries] == [{} for _ in before]
    assert keys.run("restore", "b.jsonl", "--json").json["restored"] == 500
    assert [dumps(server) for server in store_servers.primaries] == before
