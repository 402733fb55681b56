"""The other side of a conversation, by raw commands alone, as anyone with a Redis client would be it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from mpreg.store import KeyEvent, Store


@asynccontextmanager
async def raw_backend(
    store: Store, answer: Callable[[bytes, bytes], Iterable[tuple[bytes, ...]]]
) -> AsyncIterator[list[bytes]]:
    """A backend of three lines: hear of a request, read it, and send the commands that `answer(key, value)` makes."""
    seen: list[bytes] = []

    async def serve() -> None:
        async for item in events:
            if not isinstance(item, KeyEvent) or item.event != "set":
                continue
            value = await store.command(b"GET", item.key)
            if value is None:
                continue
            seen.append(item.key)
            for command in answer(item.key, value):
                await store.command(*command)

    async with store.keyspace_events(b"MUF/*/REQ/*") as events:
        task = asyncio.create_task(serve())
        try:
            yield seen
        finally:
            task.cancel()
            await asyncio.wait([task])


def res(key: bytes, value: bytes, ttl_s: int = 30) -> tuple[bytes, ...]:
    return (b"SET", key.replace(b"/REQ/", b"/RES/"), value, b"EX", b"%d" % ttl_s)


def err(key: bytes, value: bytes) -> tuple[bytes, ...]:
    return (b"SET", key.replace(b"/REQ/", b"/ERR/"), value, b"EX", b"30")


async def all_keys(store: Store) -> set[bytes]:
    return {key async for page in store.scan(match="*") for key in page}


async def until_set(store: Store, key: str) -> bytes:
    """The value of a key as soon as it is there."""
    async with store.keyspace_events(keys=[key]) as events:
        while (value := await store.command("GET", key)) is None:
            await anext(events)
        return bytes(value)
