"""The Go client that the note prints, with Debian's packages: `golang-go` and `golang-github-gorilla-websocket-dev`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.conformance.served import Served
from tests.interop.printed_clients import NOTE_URL, printed
from tests.programs import program

GOPATH = Path("/usr/share/gocode")
LIBRARY = GOPATH / "src/github.com/gorilla/websocket"
BUILD_S = 110
RUN_S = 30
# The note imports these and does not use them, which Go refuses.
UNUSED = (('    "encoding/json"\n', ""), ('    "time"\n', ""))


@pytest.fixture(scope="session")
def go() -> str:
    found = program("go", "apt-get install golang-go", required=False)
    if not LIBRARY.exists():
        pytest.skip("gorilla/websocket is not installed: apt-get install golang-github-gorilla-websocket-dev")
    return found


def run(go: str, tmp_path: Path, text: str) -> str:
    """Built without network, from the packages of the system."""
    source, binary = tmp_path / "client.go", tmp_path / "client"
    source.write_text(text)
    env = {
        **os.environ,
        "GO111MODULE": "off",
        "GOPATH": str(GOPATH),
        "GOCACHE": str(tmp_path / "cache"),
        "GOFLAGS": "",
        "HOME": str(tmp_path),
    }
    built = subprocess.run(
        [go, "build", "-o", str(binary), str(source)], capture_output=True, text=True, env=env, timeout=BUILD_S
    )
    assert built.returncode == 0, built.stderr
    done = subprocess.run([str(binary)], capture_output=True, text=True, timeout=RUN_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_its_example_calls_as_printed(go: str, served: Served, tmp_path: Path) -> None:
    text = printed("client.go", (NOTE_URL, served.listeners["ws"]), *UNUSED)
    assert run(go, tmp_path, text) == "Fibonacci(10) = 55\n"


@pytest.mark.slow
def test_it_calls_again_and_again_and_sees_errors(go: str, served: Served, tmp_path: Path) -> None:
    definition = printed("client.go", *UNUSED).partition("func main()")[0]
    main = """func main() {
    client, err := NewMPREGClient("URL", "")
    if err != nil {
        log.Fatal(err)
    }
    defer client.conn.Close()
    for i := 0; i < 3; i++ {
        result, err := client.Call("add", i, i)
        if err != nil {
            log.Fatal(err)
        }
        fmt.Println(result)
    }
    _, err = client.Call("no_such_function")
    fmt.Println(err)
}
"""
    lines = run(go, tmp_path, definition + main.replace("URL", served.listeners["ws"])).splitlines()
    assert lines[:3] == ["0", "2", "4"]
    assert "RPC_FUNCTION_NOT_FOUND" in lines[3]
