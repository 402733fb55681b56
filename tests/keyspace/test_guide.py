"""The guide of `mpreg keys` is run as it stands: its schema, its commands, and what they say (`…` is anything)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.pages import blocks, commands, same_lines
from tests.store.servers import valkey


def test_the_guide_says_what_happens(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(blocks("keys.md", "python")[0])
    with valkey() as server:
        for command in (
            "HSET shop:order:1 state packing worker w1",
            "HSET shop:order:2 state new",
            "SET shop:worker:w1 alive EX 30",
            "SADD shop:orders:open 1 2 9",
            'SET shop:cart:a ["tea"]',
            'SET shop:cart:b ["tea","cup"] EX 3000',
            "SET shop:lock:order:1 w1 EX 60",
            "SET shop:stray ?",
        ):
            server.call(*command.split())
        environment = {**os.environ, "MPREG_STORE": server.url, "MPREG_SCHEMA": "shop.py"}
        run = commands("keys.md")
        assert len(run) > 8
        for command, output in run:
            server.call("EXPIRE", "shop:worker:w1", 30)  # however slow this machine is
            server.call("EXPIRE", "shop:lock:order:1", 60)
            line = command.replace("mpreg", f"{sys.executable} -m mpreg", 1)
            done = subprocess.run(
                line,
                shell=True,
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=60,
                check=False,
            )
            assert same_lines(output, done.stdout), f"{command}\n{done.stdout}"
