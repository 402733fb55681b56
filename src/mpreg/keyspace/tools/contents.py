"""What is stored under a key, read within limits and decoded by its declaration: no key is too large to look at."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from mpreg.errors import KeyspaceError, StoreError
from mpreg.keyspace.declaration import Declaration
from mpreg.keyspace.writing import pairs, scored
from mpreg.store import Store

ELEMENTS_MAX = 100
BYTES_MAX = 1024 * 1024
_SIZE = {"hash": b"HLEN", "set": b"SCARD", "list": b"LLEN", "zset": b"ZCARD", "stream": b"XLEN"}
_SCAN_STEPS_MAX = 100  # a set that has shrunk may answer a scan with many empty pages


class Contents(msgspec.Struct, frozen=True):
    """`parts` are raw: a string's value; fields; members or elements; (member, score); (entry id, fields)."""

    type: str
    size: int
    """Bytes of a string, else elements; of all that is stored."""
    parts: list[Any]
    complete: bool


async def read(
    store: Store,
    key: bytes,
    type: str,
    declaration: Declaration | None = None,
    *,
    elements_max: int = ELEMENTS_MAX,
    bytes_max: int = BYTES_MAX,
) -> Contents | None:
    """None when the key is gone or has changed its type. The fields that a declaration names are always among
    what is read."""
    try:
        return await _read(store, key, type, declaration, elements_max, bytes_max)
    except StoreError as error:
        if error.code == "STORE_WRONG_TYPE":
            return None
        raise


async def _read(
    store: Store, key: bytes, type: str, declaration: Declaration | None, elements_max: int, bytes_max: int
) -> Contents | None:
    if type == "string":
        data = await store.command(b"GETRANGE", key, 0, bytes_max)
        if not data and not await store.command(b"EXISTS", key):
            return None
        if len(data) <= bytes_max:
            return Contents(type, len(data), [data], True)
        return Contents(type, int(await store.command(b"STRLEN", key)), [data[:bytes_max]], False)
    if type not in _SIZE:
        return Contents(type, 0, [], False)
    size = int(await store.command(_SIZE[type], key))
    if size == 0:
        return None
    memory = await store.command(b"MEMORY", b"USAGE", key, b"SAMPLES", 5)
    if memory is None:
        return None
    count = max(1, min(elements_max, size, size * bytes_max // max(1, int(memory))))
    parts, complete = await _elements(store, key, type, count, declaration)
    return Contents(type, size, parts, complete and (len(parts) < count or len(parts) >= size))


async def _elements(
    store: Store, key: bytes, type: str, count: int, declaration: Declaration | None
) -> tuple[list[Any], bool]:
    """At most so many elements (of a hash as small as a server keeps in one piece, perhaps a few more), and whether
    the server said that there are no others. Never a command that reads all, however small the key was a moment ago."""
    match type:
        case "hash":
            flat, complete = await _scan_some(store, b"HSCAN", key, count * 2)
            found = pairs(flat)
            if not complete and declaration is not None and declaration.fields is not None:
                names = [field.name.encode() for field in declaration.fields.fields]
                values = await store.command(b"HMGET", key, *names)
                found |= {name: value for name, value in zip(names, values, strict=True) if value is not None}
            return list(found.items()), complete
        case "set":
            members, complete = await _scan_some(store, b"SSCAN", key, count)
            return list(dict.fromkeys(members)), complete
        case "list":
            return list(await store.command(b"LRANGE", key, 0, count - 1)), True
        case "zset":
            return list(scored(await store.command(b"ZRANGE", key, 0, count - 1, b"WITHSCORES"))), True
        case _:
            entries = await store.command(b"XRANGE", key, b"-", b"+", b"COUNT", count)
            return [(entry_id, pairs(fields)) for entry_id, fields in entries], True


async def _scan_some(store: Store, command: bytes, key: bytes, wanted: int) -> tuple[list[Any], bool]:
    cursor, found = b"0", []
    for _ in range(_SCAN_STEPS_MAX):
        cursor, page = await store.command(command, key, cursor, b"COUNT", ELEMENTS_MAX)
        found += page
        if cursor == b"0":
            return found[:wanted], len(found) <= wanted
        if len(found) >= wanted:
            break
    return found[:wanted], False


# --- decoding ---------------------------------------------------------------------------------------------------------


def decode(declaration: Declaration, contents: Contents) -> list[Any]:
    """Each part as its declaration says: one value of a string, one struct or dict of a hash, else one an element.

    Raises KEYSPACE_UNDECODABLE. A value that was not read whole is not decoded: there is nothing to say about it.
    """
    if declaration.fields is not None:
        records = [dict(contents.parts)] if contents.type == "hash" else [fields for _, fields in contents.parts]
        return [declaration.fields.decode(record) for record in records]
    codec = declaration.codec
    assert codec is not None, "a declaration has fields or a codec"
    match contents.type:
        case "string" if not contents.complete:
            return []
        case "hash":
            return [{name.decode("utf-8", "backslashreplace"): codec.decode(data) for name, data in contents.parts}]
        case "zset":
            return [codec.decode(member) for member, _ in contents.parts]
        case _:
            return [codec.decode(part) for part in contents.parts]


def shown(declaration: Declaration | None, contents: Contents) -> tuple[Any, str | None]:
    """For people and JSON: the contents, decoded if they can be, and what is wrong if they can't."""
    fault = None
    if declaration is not None and declaration.type == contents.type:
        try:
            return _arranged(contents, decode(declaration, contents)), None
        except KeyspaceError as error:
            fault = error.message
    return _arranged(contents, None), fault


def _arranged(contents: Contents, decoded: list[Any] | None) -> Any:
    plain = [plain_value(value) for value in decoded] if decoded is not None else None
    match contents.type:
        case "string":
            return plain[0] if plain else plain_value(contents.parts[0])
        case "hash":
            return plain[0] if plain else {plain_name(name): plain_value(data) for name, data in contents.parts}
        case "zset":
            members = plain if plain is not None else [plain_value(member) for member, _ in contents.parts]
            return [{"member": m, "score": score} for m, (_, score) in zip(members, contents.parts, strict=True)]
        case "stream":
            entries = plain
            if entries is None:
                entries = [{plain_name(n): plain_value(d) for n, d in fields.items()} for _, fields in contents.parts]
            return [{"id": i.decode(), "entry": e} for (i, _), e in zip(contents.parts, entries, strict=True)]
        case _:
            return plain if plain is not None else [plain_value(part) for part in contents.parts]


def plain_value(value: Any) -> Any:
    """What JSON can hold: text, or `{"base64": …}` for bytes that are no text."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {plain_name(name): plain_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_value(inner) for inner in value]
    if value is None or isinstance(value, str | int | float):
        return value
    try:
        return plain_value(msgspec.to_builtins(value, builtin_types=(bytes,), str_keys=True))
    except TypeError:
        return repr(value)


def plain_name(name: Any) -> str:
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name)
