"""What must be known of commands before they are sent: which may not travel on a shared connection."""

from __future__ import annotations

from typing import Any

from mpreg.errors import StoreError


def _spellings(*names: str) -> frozenset[str | bytes]:
    return frozenset(x for name in names for x in (name, name.lower(), name.encode(), name.lower().encode()))


SUSPECT_ON_SHARED = _spellings(
    *[
        "SUBSCRIBE",
        "PSUBSCRIBE",
        "SSUBSCRIBE",
        "UNSUBSCRIBE",
        "PUNSUBSCRIBE",
        "SUNSUBSCRIBE",
        "MONITOR",
        "SYNC",
        "PSYNC",
    ],
    *[
        "SELECT",
        "RESET",
        "QUIT",
        "HELLO",
        "AUTH",
        "WATCH",
        "UNWATCH",
        "MULTI",
        "EXEC",
        "DISCARD",
        "READONLY",
        "READWRITE",
        "ASKING",
        "CLIENT",
    ],
    *[
        "BLPOP",
        "BRPOP",
        "BLMOVE",
        "BRPOPLPUSH",
        "BLMPOP",
        "BZPOPMIN",
        "BZPOPMAX",
        "BZMPOP",
        "WAIT",
        "WAITAOF",
        "XREAD",
        "XREADGROUP",
    ],
)


def refuse_on_shared(args: tuple[Any, ...]) -> None:
    """Raise for a command that would hold up or change the connection for everybody who shares it."""
    name = _upper(args[0])
    if name in ("XREAD", "XREADGROUP"):
        if not any(_upper(arg) == "BLOCK" for arg in args[1:]):
            return
    elif name == "CLIENT" and not (len(args) > 1 and _upper(args[1]) == "REPLY"):
        return
    raise StoreError(
        "STORE_INVALID_COMMAND",
        f"{name} would block or change the connection that all callers share; use `dedicated()` or `subscribe()`",
        command=name,
    )


def _upper(arg: Any) -> str:
    if isinstance(arg, bytes):
        return arg[:20].decode("latin-1").upper()
    return arg[:20].upper() if isinstance(arg, str) else ""
