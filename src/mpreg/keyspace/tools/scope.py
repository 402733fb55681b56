"""How far a purge may reach: a pattern must name the root of what it deletes. Pure.

`*` would empty the store, `p*` would take `poppo:` and `production:` alike. So a pattern with a wildcard begins with
literal text up to a separator at least, and where the declared roots are known, with one of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from mpreg.errors import KeyspaceError

WILDCARDS = frozenset(b"*?[")


def literal_head(pattern: bytes) -> tuple[bytes, bool]:
    """The text that every match begins with, and whether a wildcard follows it."""
    head = bytearray()
    at = 0
    while at < len(pattern):
        byte = pattern[at]
        if byte in WILDCARDS:
            return bytes(head), True
        if byte == ord("\\") and at + 1 < len(pattern):
            at += 1
            byte = pattern[at]
        head.append(byte)
        at += 1
    return bytes(head), False


def check_scope(pattern: bytes, roots: Iterable[bytes] = (), root: bytes | None = None) -> None:
    """Raise KEYSPACE_PURGE_REFUSED for a pattern that reaches too far. `roots` are those of the declared keys, `root`
    is one that was given by hand, which overrules them."""
    head, wild = literal_head(pattern)
    shown = pattern.decode("utf-8", "backslashreplace")
    allowed = [root] if root is not None else [one for one in roots if one]
    if not pattern:
        raise _refused(shown, "an empty pattern names nothing")
    if not wild and root is None:
        return  # one key, by its name
    if not head:
        raise _refused(shown, "it matches keys of every root; begin it with one, as in `sessions:*`")
    if root == b"":
        raise _refused(shown, "an empty root is none; a root is what all keys of it begin with")
    if allowed:
        if not any(head.startswith(one) for one in allowed):
            named = ", ".join(one.decode("utf-8", "backslashreplace") for one in sorted(allowed)[:10])
            raise _refused(shown, f"it reaches beyond what is declared, whose keys begin with {named}")
    elif not any(_is_separator(byte) for byte in head[1:]):
        raise _refused(shown, f"other roots may begin with {shown[: len(head)]!r} too; end the root with its separator")


def _is_separator(byte: int) -> bool:
    return byte < 0x80 and not chr(byte).isalnum()


def _refused(pattern: str, why: str) -> KeyspaceError:
    return KeyspaceError("KEYSPACE_PURGE_REFUSED", f"purge {pattern!r:.200} is refused: {why}", pattern=pattern)
