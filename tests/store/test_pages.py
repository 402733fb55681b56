"""The pages about the store and its locks are run as they stand, and what they list is what there is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.guides import ROOT
from tests.pages import blocks, run_python
from tests.store.servers import Server, valkey

from mpreg.errors import CODES
from mpreg.store import Script, Store, StoreLimits, StoreUrl
from mpreg.store.embedded_binary import find_binary
from mpreg.store.embedded_config import MAY_LOSE
from mpreg.store.lock_keys import lock_keys

pytestmark = pytest.mark.anyio
STORE = (ROOT / "docs" / "store.md").read_text()
ADDRESS = "valkey://127.0.0.1:6379/0"


@pytest.fixture
def server() -> Iterator[Server]:
    with valkey() as made:
        yield made


async def test_the_python_about_the_store_runs(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    await run_python("store.md", names, {ADDRESS: server.url})
    assert (tmp_path / "mpreg-data" / "store").is_dir()
    assert server.call("GET", "n") == b"1000"


async def test_the_python_about_locks_runs(server: Server) -> None:
    fences: list[int] = []

    async def back_up(fence: int) -> None:
        fences.append(fence)

    names: dict[str, Any] = {"back_up": back_up}
    try:
        await run_python("locks.md", names, {ADDRESS: server.url})
    finally:
        await names["store"].close()
    assert fences == [int(server.call("GET", "{backup:daily}:fence"))]
    assert server.call("EXISTS", "backup:daily", "issue_lock_5", "issue_lock_owner_5") == 0
    assert server.call("EXISTS", "issue_lock_fence_5") == 1


async def test_the_check_of_a_fence_takes_no_write_of_who_was_overtaken(store: Store) -> None:
    (lua,) = blocks("locks.md", "lua")
    check = Script.of(lua)
    fences = [5, 5, 7, 6, 7]
    taken = [await store.script(check, ["{r}fence", "{r}value"], [fence, n]) for n, fence in enumerate(fences)]
    assert taken == [1, 1, 1, 0, 1]
    assert await store.command("GET", "{r}value") == b"4"


def test_the_keys_of_a_lock_are_those_that_are_listed() -> None:
    page = (ROOT / "docs" / "locks.md").read_text()
    keys = lock_keys("backup:daily", record=True)
    for key in (keys.lock, keys.fence, keys.owner, keys.breaks, keys.channel):
        assert key is not None
        assert f"| `{key.decode()}` |" in page


@pytest.mark.skipif(not shutil.which("redis-cli"), reason="redis-cli is not installed: apt-get install redis-tools")
def test_what_is_said_of_a_node_s_store_from_outside(tmp_path: Path) -> None:
    (console,) = blocks("store.md", "console")
    serve, *others = re.findall(r"^\$ (.*)$", console, re.MULTILINE)
    mpreg = f"{sys.executable} -m mpreg"
    node = subprocess.Popen(
        serve.removesuffix(" &").replace("mpreg", mpreg, 1).split(), cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        assert node.stdout is not None
        said = [node.stdout.readline().split()[0] for _ in range(3)]
        assert said == ["ws", "tcp", "store"]
        for command in others:
            line = command.replace("mpreg ", f"{mpreg} ", 1) if command.startswith("mpreg ") else command
            done = subprocess.run(line.split(), cwd=tmp_path, capture_output=True, text=True, timeout=60)
            assert (done.returncode, done.stderr) == (0, ""), line
    finally:
        node.terminate()
        node.communicate(timeout=30)


def test_the_limits_are_as_listed() -> None:
    listed = re.findall(r"^\| `(\w+)` \| ([\d.,]+) \|", STORE, re.MULTILINE)
    there = {field.name: field.default for field in msgspec.structs.fields(StoreLimits)}
    assert {name: float(value.replace(",", "")) for name, value in listed} == there


@pytest.mark.parametrize("durability", MAY_LOSE)
def test_what_a_durability_may_lose_is_as_listed(durability: str) -> None:
    assert re.search(rf"^\| `{durability}`[^|]*\| {re.escape(MAY_LOSE[durability])} \|$", STORE, re.MULTILINE)


def test_the_codes_and_urls_are_real() -> None:
    assert set(re.findall(r"\bSTORE_[A-Z_]+\b", STORE)) <= CODES.keys()
    table = STORE.partition("| URL | is |")[2].partition("\n\n")[0]
    urls = [url for url in re.findall(r"`([a-z+]+://[^`…]+)`", table) if not url.endswith("://")]
    assert len(urls) == 4
    for url in urls:
        StoreUrl.parse(url)


def test_a_damaged_file_is_mended_as_the_page_says(tmp_path: Path) -> None:
    """The server's own binary does it, under another name."""
    (tmp_path / "valkey-check-aof").symlink_to(find_binary().path)
    log = tmp_path / "appendonly.aof.1.incr.aof"
    command = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n"
    log.write_bytes(command * 3 + b"\xff\xff" + command)
    (shell,) = blocks("store.md", "sh")
    check = next(line for line in shell.splitlines() if "--fix" in line).partition("#")[0]
    done = subprocess.run(
        check.split(),
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        input=b"y\n",
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    assert log.read_bytes() == command * 3
