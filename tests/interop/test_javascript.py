"""The JavaScript client that the note prints, on Node.js with the package `ws` for what browsers have built in."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.served import Served
from tests.interop.printed_clients import HERE, NOTE_URL, printed
from tests.programs import program

INSTALL_S = 100
RUN_S = 30
SOCKET = 'const WebSocket = require("ws");\n'
CLASS = "// Usage example"


@pytest.fixture(scope="session")
def node() -> str:
    """Node.js, with `ws` installed beside these tests if it is not there yet."""
    found = program("node", "apt-get install nodejs npm")
    if not (HERE / "node_modules" / "ws" / "package.json").exists():
        npm = program("npm", "apt-get install npm")
        subprocess.run(
            [npm, "install", "--no-save", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"],
            cwd=HERE,
            check=True,
            timeout=INSTALL_S,
        )
    return found


def run(node: str, tmp_path: Path, script: str) -> str:
    file = tmp_path / "client.cjs"
    file.write_text(SOCKET + script)
    done = subprocess.run(
        [node, str(file)],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        env={**os.environ, "NODE_PATH": str(HERE / "node_modules")},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def driven(node: str, tmp_path: Path, url: str, body: str) -> Any:
    """What the body, which has a connected `client`, leaves in `found`."""
    definition = printed("client.js").partition(CLASS)[0]
    driver = f"""
    (async () => {{
      const client = new MPREGClient({json.dumps(url)}, "your-auth-token");
      await client.connect();
      const found = {{}};
      {body}
      console.log(JSON.stringify(found));
      client.websocket.close();
    }})().catch((error) => {{ console.error(error); process.exit(1); }});
    """
    return json.loads(run(node, tmp_path, definition + driver))


def test_it_calls_functions_many_at_once(node: str, served: Served, tmp_path: Path) -> None:
    body = """
      found.one = await client.call("compute_fibonacci", 10);
      found.many = await Promise.all([...Array(50).keys()].map((n) => client.call("add", n, n)));
      found.echo = await client.call("echo", { a: [1, null, "é"] });
    """
    found = driven(node, tmp_path, served.listeners["ws"], body)
    assert found == {"one": 55, "many": [2 * n for n in range(50)], "echo": {"a": [1, None, "é"]}}


def test_it_rejects_with_what_went_wrong(node: str, served: Served, tmp_path: Path) -> None:
    body = """
      for (const fun of ["no_such_function", "raises"]) {
        await client.call(fun, "because").catch((error) => { found[fun] = error.message; });
      }
      found.after = await client.call("add", 1, 2);
    """
    found = driven(node, tmp_path, served.listeners["ws"], body)
    assert "RPC_FUNCTION_NOT_FOUND" in found["no_such_function"]
    assert "because" in found["raises"]
    assert found["after"] == 3


def test_its_example_calls_as_printed(node: str, served: Served, tmp_path: Path) -> None:
    """Its end is ours: the note's example never closes its connection."""
    text = printed(
        "client.js",
        (NOTE_URL, served.listeners["ws"]),
        ("main().catch(console.error);", "main().catch(console.error).then(() => process.exit(0));"),
    )
    assert "Fibonacci(10) = 55" in run(node, tmp_path, text)
