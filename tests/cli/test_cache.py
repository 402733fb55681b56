"""`mpreg cache …` and `mpreg bench cache`: what scripts and people rely on, as real processes."""

from __future__ import annotations

import json
import subprocess
from itertools import count
from pathlib import Path

import pytest
from tests.cli.conftest import Mpreg
from tests.conformance.served import Served
from tests.node.processes import ENVIRONMENT, MPREG

numbers = count(1)


@pytest.fixture
def ns() -> str:
    return f"cli{next(numbers)}"


def test_put_get_incr_delete(at: Mpreg, ns: str) -> None:
    assert at("cache", "put", ns, "a", '{"x": [1, 2]}', "--ttl", "60", "--tag", "t").code == 0
    assert json.loads(at("cache", "get", ns, "a").out) == {"x": [1, 2]}
    found = json.loads(at("cache", "get", ns, "a", "--strong", "--json").out)
    assert (found["value"], found["tags"], found["level"]) == ({"x": [1, 2]}, ["t"], "L3")
    assert at("cache", "incr", ns, "n", "5").out == "5\n"
    assert at("cache", "incr", ns, "n", "--json").out == '{"value": 6}\n'
    assert at("cache", "delete", ns, "a", "b").out == "1 removed\n"
    missed = at("cache", "get", ns, "a")
    assert (missed.code, missed.out) == (1, "")
    assert "nothing is cached" in missed.err


def test_errors_say_what_is_wrong(at: Mpreg, ns: str) -> None:
    at("cache", "put", ns, "a", "text")
    wrong = at("cache", "incr", ns, "a")
    assert wrong.code == 1
    assert "CACHE_WRONG_TYPE" in wrong.err
    assert at("cache", "put", ns, "a", "1", "--ttl", "0").code == 2
    assert at("cache", "invalidate", ns).code == 2
    assert at("cache", "clear", ns, "--yes", "--if", "size").code == 2
    assert "CACHE_INVALID" in at("cache", "put", "a:b", "a", "1").err


def test_ls_stats_invalidate_clear(at: Mpreg, ns: str) -> None:
    for n in range(3):
        at("cache", "put", ns, f"k{n}", str(n), "--ttl", str(100 * (n + 1)), "--tag", f"{ns}-tag")
    lines = at("cache", "ls", ns).out.splitlines()
    assert [line.split("  ")[:2] for line in lines] == [["k0", "value"], ["k1", "value"], ["k2", "value"]]
    assert len(at("cache", "ls", ns, "k*", "--limit", "2", "--json").out.splitlines()) == 2
    assert json.loads(at("cache", "stats", ns, "--json").out)["keys"] == 3
    assert "keys                 3" in at("cache", "stats", ns).out
    assert at("cache", "clear", ns, "--if", "ttl_remaining<150", "--dry-run").out == "1 would be removed\n"
    assert at("cache", "clear", ns, "--if", "ttl_remaining<150", "--yes").out == "1 removed\n"
    assert at("cache", "clear", ns).code == 1, "nobody is there to be asked"
    assert at("cache", "invalidate", ns, "k1").out == "1 removed\n"
    assert at("cache", "invalidate", ns, "--tag", f"{ns}-tag").out == "1 removed\n"


def test_backup_and_restore(at: Mpreg, ns: str, tmp_path: Path) -> None:
    for n in range(3):
        at("cache", "put", ns, f"k{n}", str(n))
    assert at("cache", "backup", ns, "saved").code == 0
    assert at("cache", "backup", ns, "saved").code == 2, "the file exists"
    assert at("cache", "clear", ns, "--yes").out == "3 removed\n"
    assert at("cache", "restore", ns, "saved").out == "3 restored, 0 skipped\n"
    assert at("cache", "restore", ns, "saved", "--json").out == '{"restored": 0, "skipped": 3}\n'
    assert at("cache", "get", ns, "k2").out == "2\n"
    data = (tmp_path / "saved").read_bytes()
    (tmp_path / "cut").write_bytes(data[:-5])
    assert "cut off" in at("cache", "restore", ns, "cut").err
    (tmp_path / "other").write_bytes(b"something else entirely")
    assert "no backup" in at("cache", "restore", ns, "other").err


def test_watch(served: Served, at: Mpreg, ns: str) -> None:
    url = served.listeners["ws"]
    watching = subprocess.Popen(
        [*MPREG, "cache", "watch", ns, "--count", "2"],
        env={**ENVIRONMENT, "MPREG_URL": url, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        with served.dial("ws", "json") as raw:
            while raw.call("mpreg.stats")["r"]["cache"]["watchers"] == 0:
                pass
        at("cache", "put", ns, "a", "1")
        at("cache", "delete", ns, "a")
        out, _ = watching.communicate(timeout=30)
    finally:
        watching.kill()
        watching.wait()
    assert out.splitlines() == ["put  a", "delete  a"]


def test_bench_cache(at: Mpreg) -> None:
    done = at("bench", "cache", "--secs", "0.05", "--in-flight", "4", "--json")
    assert done.code == 0, done.err
    figures = [json.loads(line) for line in done.out.splitlines()]
    assert [figure["case"] for figure in figures][:2] == [
        "get, node's memory, 1 in flight",
        "get, node's memory, 4 in flight",
    ]
    assert all(figure["value"] > 0 for figure in figures)
