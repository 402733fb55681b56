"""Where a store is: `valkey://user:password@host:port/db`, TLS, unix sockets, Sentinel and Cluster, in one value.

The password is kept apart from everything that is ever printed: `str(url)`, `repr(url)` and every error leave it out.
"""

from __future__ import annotations

from typing import Literal, NoReturn, TypeAlias, get_args
from urllib.parse import parse_qsl, quote, unquote

import msgspec

from mpreg.errors import StoreError

DEFAULT_PORT = 6379
SENTINEL_PORT = 26379
DATABASES_MAX = 1_000_000  # the server knows its own limit; this one only catches typing errors

Kind: TypeAlias = Literal["single", "sentinel", "cluster"]
Verify: TypeAlias = Literal["full", "ca", "none"]
Address: TypeAlias = tuple[str, int] | str
"""A host and port, or the path of a unix socket."""


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """`verify`: "full" checks chain and host name, "ca" the chain only, "none" nothing."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None
    verify: Verify = "full"


class StoreUrl(msgspec.Struct, frozen=True, kw_only=True):
    kind: Kind = "single"
    addresses: tuple[Address, ...]
    """The server; of a sentinel URL the sentinels; of a cluster URL some of its nodes."""
    user: str | None = None
    password: str | None = None
    database: int = 0
    tls: Tls | None = None
    service: str = ""
    """The name under which the sentinels know the primary."""
    sentinel_user: str | None = None
    sentinel_password: str | None = None

    @classmethod
    def parse(cls, text: str) -> StoreUrl:
        return _parse(text)

    def __str__(self) -> str:
        first = self.addresses[0]
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        if isinstance(first, str):
            return f"unix://{user}{quote(first)}{self._query}"
        scheme = "valkeys" if self.tls else "valkey"
        hosts = ",".join(format_address(address) for address in self.addresses)
        match self.kind:
            case "single":
                return f"{scheme}://{user}{hosts}/{self.database}"
            case "sentinel":
                return f"{scheme}+sentinel://{user}{hosts}/{quote(self.service, safe='')}{self._query}"
            case "cluster":
                return f"{scheme}+cluster://{user}{hosts}"

    @property
    def _query(self) -> str:
        return f"?db={self.database}" if self.database else ""

    def __repr__(self) -> str:
        return f"StoreUrl({str(self)!r})"


def format_address(address: Address) -> str:
    if isinstance(address, str):
        return address
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _refuse(part: str, why: str) -> NoReturn:
    raise StoreError("STORE_INVALID_URL", f"store URL, {part}: {why}", part=part)


_SCHEMES: dict[str, tuple[Kind, bool]] = {
    **dict.fromkeys(("valkey", "redis", "unix", "valkey+unix", "redis+unix"), ("single", False)),
    **dict.fromkeys(("valkeys", "rediss"), ("single", True)),
    **{f"{name}+sentinel": ("sentinel", False) for name in ("valkey", "redis")},
    **{f"{name}+sentinel": ("sentinel", True) for name in ("valkeys", "rediss")},
    **{f"{name}+cluster": ("cluster", False) for name in ("valkey", "redis")},
    **{f"{name}+cluster": ("cluster", True) for name in ("valkeys", "rediss")},
}
_TLS_OPTIONS = frozenset({"ca", "cert", "key", "server_name", "verify"})
_SECRETS = frozenset({"password", "sentinel_password"})


def _parse(text: str) -> StoreUrl:
    scheme, separator, rest = text.partition("://")
    if not separator:
        _refuse("scheme", "missing; write for example valkey://127.0.0.1:6379/0 or unix:///run/valkey.sock")
    known = _SCHEMES.get(scheme.lower())
    if known is None:
        _refuse("scheme", f"{scheme[:40]!r} is none of {', '.join(sorted(_SCHEMES))}")
    kind, encrypted = known
    rest, _, fragment = rest.partition("#")
    if fragment:
        _refuse("fragment", "a '#' in a password, user or path must be written %23")
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    userinfo, at, hosts = authority.rpartition("@")
    options = _options(query)
    user, password = _credentials(userinfo) if at else (None, None)
    user = options.pop("user", user)
    password = options.pop("password", password)
    sentinel_user = sentinel_password = None
    if kind == "sentinel":
        sentinel_user = options.pop("sentinel_user", None)
        sentinel_password = options.pop("sentinel_password", None)
    tls = _tls(options) if encrypted else None
    database_text = options.pop("db", None)
    if options:
        _refuse("query", f"unknown option {min(options)[:40]!r}")
    path = _decode("path", path)
    service = ""
    addresses: tuple[Address, ...]
    if scheme.lower().endswith("unix"):
        if hosts:
            _refuse("host", "a unix socket has none; three slashes: unix:///path/to/socket")
        if not path:
            _refuse("path", "the path of the socket is missing")
        addresses = (slash + path,)
    else:
        if "/" in path:
            _refuse("path", "only one level is expected after the hosts")
        default_port = SENTINEL_PORT if kind == "sentinel" else DEFAULT_PORT
        addresses = tuple(_host(host, default_port) for host in hosts.split(","))
        if kind == "single" and len(addresses) > 1:
            _refuse("host", "one server is expected; several need +sentinel or +cluster in the scheme")
        if kind == "sentinel":
            if not path:
                _refuse("path", "the name of the service is missing: valkey+sentinel://host/NAME")
            service = path
        elif path:
            if database_text is not None:
                _refuse("query", "the database is given twice, in the path and as db")
            database_text = path
    database = _database(database_text)
    if kind == "cluster" and database != 0:
        _refuse("db", "a cluster has database 0 only")
    if password == "":
        _refuse("password", "is empty; leave out the ':' for none")
    return StoreUrl(
        kind=kind,
        addresses=addresses,
        user=user or None,
        password=password,
        database=database,
        tls=tls,
        service=service,
        sentinel_user=sentinel_user,
        sentinel_password=sentinel_password,
    )


def _options(query: str) -> dict[str, str]:
    if not query:
        return {}
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError:
        _refuse("query", "is not a list of name=value joined by '&'")
    options: dict[str, str] = {}
    for name, value in pairs:
        if name in options:
            _refuse("query", f"option {name[:40]!r} is given twice")
        if not value:
            _refuse("query", f"option {name[:40]!r} is empty")
        options[name] = value
    return options


def _credentials(userinfo: str) -> tuple[str | None, str | None]:
    user, colon, password = userinfo.partition(":")
    return _decode("user", user) or None, _decode("password", password) if colon else None


def _decode(part: str, text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        _refuse(part, "a %-escape is not UTF-8")


def _host(text: str, default_port: int) -> tuple[str, int]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            _refuse("host", "an IPv6 address is written [::1]:6379")
        port = rest[1:] if rest else ""
    else:
        host, colon, port = text.partition(":")
        if ":" in port:
            _refuse("host", "an IPv6 address is written [::1]:6379")
        if colon and not port:
            _refuse("port", "is empty")
    host = _decode("host", host)
    if not host or any(c.isspace() or c in "\\@" for c in host):
        _refuse("host", "is empty" if not host else "has a character that no host name has")
    if not port:
        return host, default_port
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        _refuse("port", "is a number from 1 to 65535")
    return host, int(port)


def _database(text: str | None) -> int:
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= DATABASES_MAX):
        _refuse("db", f"{text[:40]!r} is not the number of a database")
    return int(text)


def _tls(options: dict[str, str]) -> Tls:
    chosen = {name: options.pop(name) for name in sorted(_TLS_OPTIONS & options.keys())}
    named = chosen.pop("verify", "full")
    verify = next((known for known in get_args(Verify) if known == named), None)
    if verify is None:
        _refuse("verify", "is one of full, ca, none")
    if ("cert" in chosen) != ("key" in chosen):
        _refuse("cert", "cert and key come together")
    return Tls(verify=verify, **chosen)
