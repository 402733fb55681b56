"""Opening a connection: the socket, TLS, and the handshake after which a server is known to be ready for commands."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from typing import Any

import msgspec

from mpreg.errors import StoreError
from mpreg.store.limits import StoreLimits
from mpreg.store.link import Argument, Link, LinkOwner
from mpreg.store.replies import StoreReplyError
from mpreg.store.url import Address, Tls, format_address

OLDEST = {"redis": (7, 0), "valkey": (7, 2)}
_LOST = ("STORE_CONNECTION_LOST", "STORE_PROTOCOL", "STORE_TLS")


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers: as it says of itself when a connection opens."""

    name: str
    """`valkey` or `redis`."""
    version: str
    protocol: int
    """3, or 2 where the user may not say HELLO; then maps come as flat lists."""
    mode: str
    """`standalone`, `cluster` or `sentinel`."""


class Dial(msgspec.Struct, frozen=True, kw_only=True):
    """How connections of one store are opened; all but the address."""

    name: str
    limits: StoreLimits
    user: str | None = None
    password: str | None = None
    database: int = 0
    ssl: ssl.SSLContext | None = None
    server_name: str | None = None
    primary_only: bool = False
    """Refuse a server that says it is a replica (a sentinel may be behind the times)."""
    beats: bool = True
    """Ping while idle, and give up a server that owes replies and is silent. Not where a command may block for long."""
    subscribes: bool = False

    def __repr__(self) -> str:
        return f"Dial({self.name!r})"


def tls_context(tls: Tls) -> ssl.SSLContext:
    what = tls.ca
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        what = tls.cert
        if tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise StoreError("STORE_TLS", f"the certificate file {what} is unusable", file=what) from error
    if tls.verify != "full":
        context.check_hostname = False
    if tls.verify == "none":
        context.verify_mode = ssl.CERT_NONE
    return context


async def dial(address: Address, how: Dial, owner: LinkOwner) -> tuple[Link, Server]:
    """A connection that is ready for commands, or the StoreError that says why not."""
    place = format_address(address)
    link: Link | None = None
    ready = False
    try:
        async with asyncio.timeout(how.limits.connect_timeout_s):
            link = await _open(address, how, owner)
            server = await _greet(link, how, place)
            ready = True
    except TimeoutError:
        why = f"no answer from {place} in {how.limits.connect_timeout_s:g} s"
        if how.ssl is not None and link is None:
            why += "; does it speak TLS?"
        raise StoreError("STORE_UNAVAILABLE", why, address=place) from None
    except StoreError as error:
        if error.code in _LOST and error.code != "STORE_CONNECTION_LOST":
            raise StoreError(error.code, f"{place}: {error.message}", address=place) from None
        if error.code == "STORE_CONNECTION_LOST":
            tls_port = "" if how.ssl is not None or isinstance(address, str) else "is it a TLS port, or "
            why = f"{place} closed the connection before it was ready: {tls_port}does it take no more clients?"
            raise StoreError("STORE_UNAVAILABLE", why, address=place) from None
        raise
    finally:
        if link is not None and not ready:
            link.lose(StoreError("STORE_CLOSED", "the connection was given up"))
            await asyncio.shield(link.closed)
    if how.beats:
        link.start_beat()
    return link, server


async def _open(address: Address, how: Dial, owner: LinkOwner) -> Link:
    loop = asyncio.get_running_loop()
    place = format_address(address)

    def make() -> Link:
        return Link(owner, how.limits, loop)

    try:
        if isinstance(address, str):
            _, link = await loop.create_unix_connection(make, address)
            return link
        host, port = address
        server_name = (how.server_name or host) if how.ssl is not None else None
        transport, link = await loop.create_connection(make, host, port, ssl=how.ssl, server_hostname=server_name)
    except ssl.SSLCertVerificationError as error:
        why = f"the certificate of {place} is not accepted: {error.verify_message}"
        raise StoreError("STORE_TLS", why, address=place) from error
    except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError) as error:
        if how.ssl is None:
            raise StoreError("STORE_UNAVAILABLE", f"{place} broke the connection off", address=place) from error
        why = f"{place} does not answer as a TLS server; for a plain port use the scheme valkey://"
        raise StoreError("STORE_TLS", why, address=place) from error
    except OSError as error:
        why = f"no connection to {place}: {error.strerror or type(error).__name__}"
        raise StoreError("STORE_UNAVAILABLE", why, address=place) from error
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return link


async def _greet(link: Link, how: Dial, place: str) -> Server:
    server = await _hello(link, how, place)
    _check_version(server, place)
    if how.database:
        try:
            await link.send(b"SELECT", how.database)
        except StoreReplyError as error:
            if error.code != "STORE_REPLY":
                raise
            why = f"{place} has no database {how.database}"
            raise StoreError("STORE_INVALID_URL", why, part="db") from error
    if how.primary_only:
        role = await link.send(b"ROLE")
        if role[0] != b"master":
            raise StoreError("STORE_READ_ONLY", f"{place} is no primary (any more)", address=place)
    try:
        await link.send(b"PING")
    except StoreReplyError as error:
        if error.code == "STORE_LOADING":
            raise
    return server


async def _hello(link: Link, how: Dial, place: str) -> Server:
    login: list[Argument] = [b"AUTH", how.user or "default", how.password] if how.password is not None else []
    try:
        about = await link.send(b"HELLO", b"3", *login, b"SETNAME", how.name)
    except StoreReplyError as error:
        # NOAUTH to a HELLO that carries the password: the server does not know HELLO.
        unheard = error.details["reply"] == "NOAUTH" and how.password is not None
        if error.code == "STORE_AUTH" and not unheard:
            raise _auth_error(error, how, place) from None
        if error.details["reply"] not in ("NOPERM", "ERR", "NOAUTH"):
            raise
        return await _resp2(link, how, place)
    return Server(
        name=_text(about[b"server"]),
        version=_text(about[b"version"]),
        protocol=3,
        mode=_text(about.get(b"mode", b"standalone")),
    )


async def _resp2(link: Link, how: Dial, place: str) -> Server:
    """HELLO is forbidden or unknown. Replies are matched just as well; only their types are poorer."""
    link.pushes_are_lists = how.subscribes
    try:
        if how.password is not None:
            await link.send(b"AUTH", *([how.user] if how.user else []), how.password)
    except StoreReplyError as error:
        if error.code in ("STORE_AUTH", "STORE_REPLY"):
            raise _auth_error(error, how, place) from None
        raise
    try:
        info = _text(await link.send(b"INFO", b"server"))
    except StoreReplyError as error:
        if error.code == "STORE_AUTH":
            raise _auth_error(error, how, place) from None
        raise
    fields = dict(re.findall(r"^(\w+):(\S*)\s*$", info, re.MULTILINE))
    name = fields.get("server_name", "redis")
    version = fields.get(f"{name}_version") or fields.get("redis_version", "0")
    return Server(name=name, version=version, protocol=2, mode=fields.get("server_mode", "standalone"))


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _auth_error(error: StoreReplyError, how: Dial, place: str) -> StoreError:
    # The server's own text is left out: what it quotes may be the secret.
    if how.password is None:
        why = f"{place} wants a password and the URL has none"
    else:
        why = f"{place} refused the password of user {how.user or 'default'!r}"
    return StoreError("STORE_AUTH", why, address=place, reply=error.details["reply"])


def _check_version(server: Server, place: str) -> None:
    oldest = OLDEST.get(server.name, OLDEST["redis"])
    numbers = tuple(int(n) for n in re.findall(r"\d+", server.version)[:2])
    if numbers < oldest:
        needed = ", ".join(f"{name} {major}.{minor}" for name, (major, minor) in OLDEST.items())
        raise StoreError(
            "STORE_UNSUPPORTED_VERSION",
            f"{place} is {server.name} {server.version}; the oldest that work: {needed}",
            found=f"{server.name} {server.version}",
            needed=needed,
        )
