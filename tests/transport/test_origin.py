"""Pages of the web may not call the functions of whoever looks at them."""

from __future__ import annotations

import pytest
from tests.transport.ends import Recorder, listening
from tests.transport.sockets import REQUEST, raw

from mpreg.errors import MpregError
from mpreg.transport import dial
from mpreg.transport.origin import may_come

pytestmark = pytest.mark.anyio


def request(origin: str | None, host: str = "127.0.0.1:6666") -> bytes:
    head = f"GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket"
    return head.encode() if origin is None else f"{head}\r\norigin:  {origin}".encode()


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "http://localhost",
        "http://localhost:3000",
        "https://127.0.0.1:8080",
        "http://127.9.9.9",
        "http://[::1]:80",
    ],
)
def test_programs_and_pages_of_this_machine_may_connect(origin: str | None) -> None:
    assert may_come(request(origin), ())


@pytest.mark.parametrize(
    "origin",
    [
        "https://example.org",
        "null",
        "http://localhost.example.org",
        "http://127.0.0.1.example.org",
        "http://127.0.0.1@example.org",
        "http://10.0.0.9",
        "http://[::1",
        "file://",
        "http://localhost\r\norigin: https://example.org",
    ],
)
def test_pages_from_elsewhere_may_not(origin: str) -> None:
    assert not may_come(request(origin), ())


def test_a_page_of_the_host_itself_may_if_the_host_is_called_by_its_number() -> None:
    assert may_come(request("http://10.0.0.9:8080", "10.0.0.9:6666"), ())
    assert may_come(request("http://[2001:db8::1]", "[2001:db8::1]:6666"), ())
    assert not may_come(request("http://evil.example", "evil.example:6666"), ())


def test_origins_can_be_allowed() -> None:
    assert may_come(request("https://example.org"), ("https://example.org",))
    assert may_come(request("HTTPS://Example.org"), ("https://example.org",))
    assert not may_come(request("http://example.org"), ("https://example.org",))
    assert may_come(request("null"), ("*",))


async def test_a_listener_turns_such_pages_away_with_the_reason() -> None:
    async with listening("ws") as (listener, _):
        async with raw(listener.url) as (reader, writer):
            writer.write(REQUEST.replace(b"\r\n\r\n", b"\r\nOrigin: https://example.org\r\n\r\n"))
            answer = await reader.read()
        with pytest.raises(MpregError, match="403"):
            await dial(listener.url, Recorder().accept, headers={"Origin": "https://example.org"})
        page = Recorder()
        (await dial(listener.url, page.accept, headers={"Origin": "http://localhost:3000"})).close()
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"`origins`" in answer
