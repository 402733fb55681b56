"""Would a node let this one in? Asked without joining: the whole handshake, and then no link."""

from __future__ import annotations

import asyncio
import secrets
from typing import NoReturn

from mpreg.cluster.handshake import Identity
from mpreg.cluster.opening import HELLO_S, Opening
from mpreg.cluster.options import ClusterOptions
from mpreg.errors import ClusterError, MpregError, TimedOut
from mpreg.transport import Link, dial
from mpreg.transport.url import parse


async def check(url: str, options: ClusterOptions) -> float:
    """How many seconds that node's clock is ahead. Raises what keeps this node out."""
    me = Identity(options.node_id, secrets.token_hex(8), options.cluster_id, check=True)
    openings: list[Opening] = []

    def accept(link: Link) -> Opening:
        secret = options.secret or b""
        opening = Opening(link, me, secret, dials=True, introduced=_nothing, opened=_no_link, announced=_nothing)
        openings.append(opening)
        return opening

    tls = options.tls if parse(url).secure else None
    await dial(url, accept, limits=options.limits, tls=tls, timeout_s=HELLO_S)
    opening = openings[0]
    opening.introduce()
    try:
        async with asyncio.timeout(HELLO_S):
            await opening.done
    except TimeoutError:
        raise TimedOut("TIMEOUT_CONNECT", f"{url} took no part in the handshake", url=url) from None
    except MpregError as error:
        if error.code != "CLUSTER_CHECKED":
            raise
    finally:
        opening.link.close()
    return opening.clock_skew_s


def _nothing(_: object) -> None: ...


def _no_link(opening: Opening) -> NoReturn:
    raise ClusterError("CLUSTER_CHECKED", "No link was wanted")
