"""`mpreg serve`: the command line that scripts and other programs rely on, as real processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from tests.node.processes import ENVIRONMENT, MPREG, ROOT, mpreg, serving
from tests.store.servers import valkey

from mpreg.client import connect
from mpreg.errors import MpregError

pytestmark = pytest.mark.anyio

FREE = ("--ws", "0", "--tcp", "0", "--store", "off")

APP = """
import asyncio, os, signal, threading, time
from mpreg import Node
node = Node("app")
other = Node("other")

@node.function
async def greet(name: str) -> str:
    return f"Hello, {name}!"

@node.function
async def slow(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "finished"

@node.function
async def stop_me_then_wait(seconds: float) -> str:
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(seconds)
    return "finished"

@node.function
def block_for_ever() -> None:
    threading.Event().wait()

@node.function
async def fail() -> None:
    raise ValueError("on purpose")

@node.function
def exit_process() -> None:
    raise SystemExit(7)
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


async def test_it_says_where_it_listens_and_the_ready_file_says_the_same(app: Path) -> None:
    async with serving(app, "app.py:node", *FREE, "--name", "n1") as served:
        ready = served.ready
        assert ready["node"] == "n1"
        assert ready["pid"] == served.process.pid
        assert set(ready["listeners"]) == {"ws", "tcp"}
        assert all(url.startswith(f"{scheme}://127.0.0.1:") for scheme, url in ready["listeners"].items())
        assert "store" not in ready
        async with connect(served.ready["listeners"]["ws"]) as client:
            assert await client.call("greet", "you") == "Hello, you!"
        code, out, err = await served.stop()
    assert code == 0
    assert out.splitlines() == [f"{scheme} {url}" for scheme, url in ready["listeners"].items()]
    assert "n1 serves" in err
    assert "SIGTERM" in err
    assert not (app / "ready.json").exists()


@pytest.mark.parametrize("target", ["app.py:node", "app:node", "app.py", "app"])
async def test_a_program_is_named_by_file_or_module(app: Path, target: str) -> None:
    async with serving(app, target, *FREE) as served:
        assert served.ready["node"] == "app"


async def test_without_a_program_there_are_the_built_in_functions(tmp_path: Path) -> None:
    async with serving(tmp_path, *FREE) as served, connect(served.url) as client:
        assert await client.call("echos", 1, "two") == [1, "two"]
        (node,) = await client.call("mpreg.nodes")
        assert node["pid"] == served.process.pid


async def test_a_listener_can_be_turned_off(tmp_path: Path) -> None:
    async with serving(tmp_path, "--ws", "off", "--tcp", "0", "--store", "off") as served:
        assert list(served.ready["listeners"]) == ["tcp"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_node_that_is_told_to_stop_finishes_what_runs(app: Path, number: int) -> None:
    async with serving(app, "app.py", *FREE) as served, connect(served.url) as client:
        slow = asyncio.ensure_future(client.call("slow", 0.3))
        await client.call("greet", "you")
        served.process.send_signal(number)
        assert await slow == "finished"
        code, _, _ = await served.ended()
        assert code == 0


async def test_what_runs_longer_than_the_grace_time_is_ended_with_an_answer(app: Path) -> None:
    async with serving(app, "app.py", *FREE, env={"MPREG_GRACE_S": "0.1"}) as served, connect(served.url) as client:
        with pytest.raises(MpregError) as caught:
            await client.call("stop_me_then_wait", 600)
        assert caught.value.code == "RESOURCE_SHUTTING_DOWN"
        assert (await served.ended())[0] == 0


async def test_a_thread_that_never_returns_does_not_keep_the_node_from_ending(app: Path) -> None:
    async with serving(app, "app.py", *FREE, env={"MPREG_GRACE_S": "0"}) as served, connect(served.url) as client:
        with pytest.raises(MpregError) as caught:
            await client.call("block_for_ever", timeout=0.05)
        assert caught.value.code == "TIMEOUT_EXCEEDED"
        assert (await served.stop())[0] == 0


async def test_it_runs_with_its_standard_files_closed(tmp_path: Path) -> None:
    """As some daemons are started; the sockets must not get their numbers."""
    ready_file = tmp_path / "ready.json"
    options = ("serve", *FREE, "--ready-file", str(ready_file))
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *MPREG, *options, cwd=tmp_path, env=ENVIRONMENT
    )
    try:
        async with asyncio.timeout(30):
            while not ready_file.exists() and process.returncode is None:
                await asyncio.sleep(0.01)  # nothing tells when a file appears
        async with connect(json.loads(ready_file.read_bytes())["listeners"]["tcp"]) as client:
            assert await client.call("echo", 1) == 1
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_second_signal_ends_it_at_once(app: Path) -> None:
    async with serving(app, "app.py", *FREE, env={"MPREG_GRACE_S": "600"}) as served, connect(served.url) as client:
        slow = asyncio.ensure_future(client.call("stop_me_then_wait", 600, timeout=600))
        with suppress(MpregError):  # it takes no new work and the call waits, so the first signal has arrived
            while True:
                await client.call("greet", "you", timeout=1)
        served.process.send_signal(signal.SIGTERM)
        assert (await served.ended())[0] == 128 + signal.SIGTERM
        with pytest.raises(MpregError):
            await slow


async def test_a_function_that_exits_does_not_end_the_node(app: Path) -> None:
    async with serving(app, "app.py", *FREE) as served, connect(served.url) as client:
        with pytest.raises(MpregError) as caught:
            await client.call("exit_process")
        assert (caught.value.code, caught.value.type) == ("RPC_FUNCTION_FAILED", "SystemExit")
        assert await client.call("greet", "you") == "Hello, you!"


async def test_debug_sends_tracebacks_and_logs_more(app: Path) -> None:
    async with serving(app, "app.py", *FREE, "--debug") as served, connect(served.url) as client:
        with pytest.raises(MpregError) as caught:
            await client.call("fail")
        assert "on purpose" in (caught.value.traceback or "")
        assert "fail raised" in (await served.stop())[2]


async def test_nothing_is_logged_for_a_request_at_info(app: Path) -> None:
    async with serving(app, "app.py", *FREE, "--log", "json") as served:
        async with connect(served.url) as client:
            await client.call("greet", "you")
            with pytest.raises(MpregError):
                await client.call("fail")
        _, _, err = await served.stop()
    lines = err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith('{"time":') and '"level": "info"' in line for line in lines)


async def test_a_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        code, out, err = await mpreg(tmp_path, "serve", "--ws", str(port), "--tcp", "0", "--store", "off")
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    assert f"ws://127.0.0.1:{port}" in line
    assert "in use" in line


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["none.py"], "no such file"),
        (["no.such.module"], "no module is called 'no'"),
        (["broken.py"], "ZeroDivisionError: division by zero at "),
        (["syntax.py"], "SyntaxError"),
        (["app.py:nobody"], "has no 'nobody'"),
        (["app.py:APP"], "not a Node"),
        (["empty.py"], "makes no Node"),
        (["two.py"], "several nodes"),
        (["--config", "none.toml"], "No such file"),
        (["--config", "bad.toml"], "bad.toml: "),
        (["--config", "unknown.toml"], "no setting is called 'wsport'"),
        (["--config", "range.toml"], "limits.frame_bytes_max"),
        (["--name", "x" * 200], "the command line: name"),
        (["--wss", "0"], "wss needs tls_cert"),
        (["--wss", "0", "--tls-cert", "none.pem", "--tls-key", "none.pem"], "none.pem: No such file"),
        (["--store", "gopher://x"], "gopher"),
        (["--ready-file", "none/ready.json"], "ready file"),
        (["--host", "999.0.0.1"], "999.0.0.1"),
    ],
)
async def test_what_stands_in_the_way_is_one_clear_line(tmp_path: Path, args: list[str], says: str) -> None:
    (tmp_path / "app.py").write_text(APP + "APP = 7\n")
    (tmp_path / "broken.py").write_text("x = 1\n1 / 0\n")
    (tmp_path / "syntax.py").write_text("def :\n")
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "two.py").write_text("from mpreg import Node\na = Node('a')\nb = Node('b')\n")
    (tmp_path / "bad.toml").write_text("ws = \n")
    (tmp_path / "unknown.toml").write_text("wsport = 1\n")
    (tmp_path / "range.toml").write_text("[limits]\nframe_bytes_max = 'many'\n")
    code, out, err = await mpreg(tmp_path, "serve", "--ws", "0", "--tcp", "0", "--store", "off", *args)
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    assert line.startswith("mpreg: ")
    assert says in line


@pytest.mark.parametrize("port", ["70000", "-1", "x", "1.5", ""])
async def test_a_port_that_is_none_is_wrong_usage(tmp_path: Path, port: str) -> None:
    code, _, err = await mpreg(tmp_path, "serve", "--ws", port)
    assert code == 2
    assert "Traceback" not in err


async def test_settings_come_from_file_environment_and_command_line_the_later_over_the_earlier(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text('name = "file"\nws = "off"\ntcp = 0\nstore = "off"\n')
    for env, args, name in (
        ({}, (), "file"),
        ({"MPREG_NAME": "env"}, (), "env"),
        ({"MPREG_NAME": "env"}, ("--name", "line"), "line"),
    ):
        async with serving(tmp_path, "--config", "node.toml", *args, env=env) as served:
            assert served.ready["node"] == name
            assert list(served.ready["listeners"]) == ["tcp"]


async def test_an_address_that_others_can_reach_is_allowed_with_a_warning(tmp_path: Path) -> None:
    async with serving(tmp_path, "--host", "0.0.0.0", *FREE) as served:
        _, _, err = await served.stop()
    assert "WARNING" in err
    assert "does not ask who they are" in err


async def test_the_embedded_store_runs_with_the_node_and_ends_with_it(tmp_path: Path) -> None:
    async with serving(tmp_path, "--ws", "0", "--tcp", "off", "--data-dir", "data") as served:
        url = served.ready["store"]
        assert await answers(url)
        code, out, _ = await served.stop()
        assert code == 0
        assert out.splitlines()[-1] == f"store {url}"
        assert not await answers(url)


async def test_a_node_that_is_killed_leaves_no_store_behind(tmp_path: Path) -> None:
    async with serving(tmp_path, "--ws", "0", "--tcp", "off", "--data-dir", "data", "--durability", "always") as served:
        children = await asyncio.to_thread(children_of, served.process.pid)
        assert children
        await served.stop(signal.SIGKILL)
        async with asyncio.timeout(30):
            while any(is_alive(pid) for pid in children):
                await asyncio.sleep(0.01)  # nothing tells when a process that is not ours ends
    async with serving(tmp_path, "--ws", "0", "--tcp", "off", "--data-dir", "data", "--durability", "always") as again:
        assert again.ready["store"]


async def test_a_store_of_a_cluster_or_a_server_that_is_there_already_is_used(tmp_path: Path) -> None:
    with valkey(tcp=True, password="s3cret") as server:
        url = f"valkey://:s3cret@127.0.0.1:{server.port}/3"
        async with serving(tmp_path, "--ws", "0", "--tcp", "off", "--store", url) as served:
            assert served.ready["store"] == url
            assert (tmp_path / "ready.json").stat().st_mode & 0o077 == 0, "it has the password"
            assert await answers(served.ready["store"])
            code, out, err = await served.stop()
        assert code == 0
        assert out.splitlines()[-1] == f"store valkey://127.0.0.1:{server.port}/3"
        assert "s3cret" not in out + err
        assert server.running
        assert not (tmp_path / "mpreg-data").exists()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("valkey://127.0.0.1:1/0", "no connection to 127.0.0.1:1"),
        ("unix:///nowhere/valkey.sock", "no connection to /nowhere/valkey.sock"),
        ("valkey://:wr0ng@127.0.0.1:{port}", "refused the password"),
        ("valkey://127.0.0.1:{port}", "wants a password"),
        ("valkey://:s3cret@127.0.0.1:{port}/99", "no database 99"),
        ("valkey+cluster://:s3cret@127.0.0.1:{port}", "no cluster"),
        ("valky://127.0.0.1", "scheme"),
    ],
)
async def test_a_store_that_can_not_be_used_is_one_clear_line(tmp_path: Path, url: str, says: str) -> None:
    with valkey(tcp=True, password="s3cret") as server:
        url = url.format(port=server.port)
        code, out, err = await mpreg(tmp_path, "serve", "--ws", "0", "--tcp", "0", "--store", url)
    assert (code, out) == (1, "")
    (line,) = err.splitlines()
    assert says in line
    assert "s3cret" not in line
    assert "wr0ng" not in line


async def test_a_store_whose_server_keeps_dying_ends_the_node_with_the_reason(tmp_path: Path) -> None:
    async with serving(tmp_path, "--ws", "0", "--tcp", "off", "--data-dir", "data") as served:
        (manifest,) = (tmp_path / "data" / "store" / "data" / "appendonlydir").glob("*.manifest")
        manifest.write_text("nonsense\n")
        for pid in await asyncio.to_thread(children_of, served.process.pid):
            os.kill(pid, signal.SIGKILL)
        code, _, err = await served.ended()
    assert code == 1
    assert "STORE_DATA_CORRUPT" in err.splitlines()[-1]
    assert not (tmp_path / "ready.json").exists()


async def test_two_nodes_on_one_data_directory_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, "--ws", "0", "--tcp", "off", "--data-dir", "data") as served:
        code, _, err = await mpreg(tmp_path, "serve", "--ws", "0", "--tcp", "off", "--data-dir", "data")
        assert code == 1
        assert "STORE_DATA_DIR_IN_USE" in err
        assert await answers(served.ready["store"])


async def test_a_node_of_a_program_serves_itself(app: Path) -> None:
    program = app / "own.py"
    program.write_text(APP + '\nif __name__ == "__main__":\n    node.run()\n')
    import sys

    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(program),
        cwd=app,
        stdout=asyncio.subprocess.PIPE,
        env={**ENVIRONMENT, "MPREG_WS": "off", "MPREG_TCP": "0", "MPREG_STORE": "off"},
    )
    try:
        assert process.stdout is not None
        scheme, url = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().split()
        assert scheme == "tcp"
        async with connect(url) as client:
            assert await client.call("greet", "you") == "Hello, you!"
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_the_example_runs_and_its_client_and_call_reach_it(tmp_path: Path) -> None:
    async with serving(tmp_path, str(ROOT / "examples/hello.py"), *FREE) as served:
        import sys

        client = await asyncio.create_subprocess_exec(
            sys.executable, str(ROOT / "examples/hello_client.py"), served.url, stdout=asyncio.subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(client.communicate(), 30)
        assert out.decode().splitlines() == ["Hello, world!", "[0.0, 2.0, 4.0, 6.0, 8.0]"]
        assert await mpreg(tmp_path, "call", "greet", "you", "times=2", "--url", served.url) == (
            0,
            "Hello, you! Hello, you!\n",
            "",
        )


async def answers(store_url: str) -> bool:
    from mpreg.store import connect as connect_store

    try:
        store = await connect_store(store_url)
    except MpregError:
        return False
    try:
        return bool(await store.command("PING") == b"PONG")
    finally:
        await store.close()


def children_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == pid:
                found.append(int(entry.name))
    return found


def is_alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
