"""Learns where the other nodes of the cluster are, so that a client that was given one address survives that node.

Only addresses of the same kind as those that the program gave are taken: nobody is talked into a link without TLS.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from mpreg.errors import MpregError
from mpreg.transport.url import parse

log = logging.getLogger(__name__)

AGAIN_S: Final = 60.0
NODES_MAX: Final = 64
"""Addresses that a client remembers besides its own."""

Ask = Callable[[], Awaitable[list[dict[str, Any]]]]


def addresses(nodes: Sequence[dict[str, Any]], schemes: set[str]) -> list[str]:
    """Of living nodes, for clients, of these schemes; each once."""
    found: dict[str, None] = {}
    for node in nodes:
        urls = node.get("client_urls")
        if node.get("state") not in ("alive", "suspect") or not isinstance(urls, list):
            continue
        for url in urls:
            try:
                if parse(url).scheme in schemes:
                    found[url] = None
            except (MpregError, AttributeError, TypeError):
                continue
    return list(found)[:NODES_MAX]


async def discover(ask: Ask, schemes: set[str], first_s: float, learn: Callable[[list[str]], None]) -> None:
    """Until it is cancelled. What can't be asked now is asked later."""
    pause = first_s
    while True:
        await asyncio.sleep(pause)
        pause = AGAIN_S
        try:
            learn(addresses(await ask(), schemes))
        except MpregError as error:
            log.debug("The nodes of the cluster are not known: %s", error)
