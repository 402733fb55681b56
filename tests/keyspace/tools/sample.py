"""A small declared system, keys of every type and any bytes, and what a store holds, to compare before and after."""

from __future__ import annotations

from typing import Any

import msgspec

from mpreg.keyspace.catalog import Catalog
from mpreg.keyspace.codec import text
from mpreg.keyspace.keyspace import Keyspace
from mpreg.store import Store


class Job(msgspec.Struct):
    state: str
    owner: str | None = None


APP = Keyspace("app", prefix="app:")
APP.hash("job:{job:int}", Job, name="job", ttl=3600)
APP.string("temp:{name:bytes}", text, name="temp", ttl=60)
APP.string("session:{name}", text, name="session", ttl=1800)
APP.string("lock:{name}", text, name="lock", ttl=300, protection="lock")
APP.set("active", text, name="active", protection="state")
APP.list("queue:{name}", text, name="queue")
CATALOG = Catalog([APP])

ODD_KEYS = (
    b"app:temp:with space",
    b"app:temp:line\nfeed",
    b"app:temp:\x00\xff\xfe",
    b"app:temp:[*?]\\",
    "app:temp:日本".encode(),
)


async def fill(store: Store) -> None:
    """Every type, with and without an end, small and large."""
    send = store.command
    for key in ODD_KEYS:
        await send("SET", key, b"\x00odd\xff", "PX", 100_000)
    await send("SET", "app:session:forever", "x")
    await send("SET", "app:session:empty", "")
    await send("SET", "app:session:number", "12345", "EX", 1000)
    await send("SET", "app:session:large", "large" * 60_000, "EX", 1000)
    await send("HSET", "app:job:1", "state", "open", "owner", "me")
    await send("EXPIRE", "app:job:1", 3000)
    await send("HSET", "app:job:2", *[part for n in range(2_000) for part in (f"field{n}", f"value{n}")])
    await send("SADD", "app:active", *[f"member{n}" for n in range(1_000)])
    await send("SADD", "app:numbers", *range(100))
    await send("RPUSH", "app:queue:a", *[f"item{n}" for n in range(3_000)])
    await send("ZADD", "app:scores", *[part for n in range(1_000) for part in (n / 3, f"member{n}")])
    await send("XADD", "app:events", "1-1", "a", "1")
    await send("XADD", "app:events", "1-2", "a", "2")
    await send("XGROUP", "CREATE", "app:events", "group", "0")
    await send("SET", "other:1", "not ours")


async def contents(store: Store, match: str = "*") -> dict[bytes, Any]:
    """Type, expiry and value of every key, without regard to how the server keeps it."""
    return {key: await content(store, key) async for page in store.scan(match) for key in page}


async def content(store: Store, key: bytes) -> Any:
    kind = (await store.command("TYPE", key)).decode()
    read: dict[str, tuple[Any, ...]] = {
        "string": ("GET", key),
        "hash": ("HGETALL", key),
        "set": ("SMEMBERS", key),
        "list": ("LRANGE", key, 0, -1),
        "zset": ("ZRANGE", key, 0, -1, "WITHSCORES"),
        "stream": ("XRANGE", key, "-", "+"),
    }
    value = await store.command(*read[kind])
    if kind == "hash":
        value = dict(value) if isinstance(value, dict) else dict(zip(value[::2], value[1::2], strict=True))
    return kind, await store.command("PEXPIRETIME", key), set(value) if kind == "set" else value


async def payloads(store: Store, match: str = "*") -> dict[bytes, tuple[bytes, int]]:
    """DUMP and expiry of every key. Left out are hash tables: the order of their elements is that of their making."""
    found = {}
    async for page in store.scan(match):
        for key in page:
            if await store.command("OBJECT", "ENCODING", key) != b"hashtable":
                found[key] = (await store.command("DUMP", key), await store.command("PEXPIRETIME", key))
    return found
