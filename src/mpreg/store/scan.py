"""SCAN over every primary. As the server promises it: a key that is there from the beginning to the end comes at least
once, another key perhaps. That holds across reconnects, failovers and slots that move meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from mpreg.errors import StoreError
from mpreg.store.link import Argument
from mpreg.store.server_link import ServerLink
from mpreg.store.servers import Holding, Servers

COUNT = 500
ROUNDS_MAX = 100


async def scan(
    servers: Servers, match: str | bytes | None = None, type: str | None = None, count: int = COUNT
) -> AsyncIterator[list[bytes]]:
    """Pages of keys, never an empty one. `count` is how much work the server does between two pages."""
    options: list[Argument] = [b"COUNT", count]
    if match is not None:
        options += [b"MATCH", match]
    if type is not None:
        options += [b"TYPE", type]
    scanned: dict[ServerLink, Holding] = {}
    for _ in range(ROUNDS_MAX):
        layout = await servers.layout()
        waiting = [link for link, held in layout.items() if _may_hold_more(held, scanned.get(link))]
        if not waiting:
            return
        link = min(waiting, key=scanned.__contains__)  # a second look comes after all first ones
        # Whatever had been imported when this scan began is seen by it. Importing that goes on is looked at once more.
        again = link in scanned
        scanned[link] = Holding(layout[link].slots, layout[link].importing if again else frozenset())
        async for page in _scan_one(link, options):
            yield page
    raise StoreError("STORE_CLUSTER_DOWN", f"the slots of the cluster still move after {ROUNDS_MAX} servers scanned")


def _may_hold_more(now: Holding, when_scanned: Holding | None) -> bool:
    """A key that moved before its old server was scanned, and after its new one was, shows as a slot gained."""
    if when_scanned is None:
        return True
    return bool(now.slots - when_scanned.slots) or bool(now.importing - when_scanned.importing)


async def _scan_one(link: ServerLink, options: list[Argument]) -> AsyncIterator[list[bytes]]:
    for _ in range(ROUNDS_MAX):
        connection = link.connections
        cursor: bytes = b"0"
        while True:
            try:
                cursor, keys = await link.command(b"SCAN", cursor, *options)
            except StoreError as error:
                if error.code != "STORE_CONNECTION_LOST":
                    raise
                break
            if keys:
                yield keys
            if link.connections != connection:
                break
            if cursor == b"0":
                return
        # A cursor means nothing to a server that was started anew: from the beginning.
    raise StoreError("STORE_CONNECTION_LOST", f"the connection broke {ROUNDS_MAX} times during one scan")
