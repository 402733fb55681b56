"""Links to many peers, made when needed and shared: each address has a few links and a breaker of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from mpreg.errors import MpregError, ResourceError, TransportError
from mpreg.transport.breaker import Breaker, BreakerPolicy
from mpreg.transport.dialler import TIMEOUT_S, dial
from mpreg.transport.link import Link
from mpreg.transport.listener import Accept
from mpreg.transport.tls import TlsFiles
from mpreg.wire.limits import CLIENT, Limits


class _Place:
    """What is known of one address."""

    def __init__(self, policy: BreakerPolicy | None) -> None:
        self.links: list[Link] = []
        self.breaker = Breaker(policy)
        self.dialling: asyncio.Task[Link] | None = None


class Pool:
    """`link` gives the least busy link to an address, and dials one while there are fewer than `links_per_address`.

    Callers that need the same new link wait for one dial. A link carries any number of requests at once, so it is
    never taken out of the pool, and never given back.
    """

    def __init__(
        self,
        accept: Accept,
        *,
        limits: Limits = CLIENT,
        tls: TlsFiles | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        links_per_address: int = 1,
        addresses_max: int = 1024,
        policy: BreakerPolicy | None = None,
    ) -> None:
        self._accept = accept
        self._limits = limits
        self._tls = tls
        self._headers = headers
        self._timeout_s = timeout_s
        self._links_per_address = links_per_address
        self._addresses_max = addresses_max
        self._policy = policy
        self._places: dict[str, _Place] = {}
        self._closed = False

    async def link(self, url: str) -> Link:
        """Raises what `dial` raises, `TRANSPORT_CIRCUIT_OPEN`, and `RESOURCE_EXHAUSTED` for too many addresses."""
        if self._closed:
            raise TransportError("TRANSPORT_CLOSED", "The pool is closed")
        place = self._place(url)
        place.links = [link for link in place.links if not link.closed]
        if place.links and (len(place.links) >= self._links_per_address or place.dialling is not None):
            return min(place.links, key=lambda link: link.waiting)
        if place.dialling is None:
            loop = asyncio.get_running_loop()
            ticket = place.breaker.admit(loop.time())
            if ticket is None:
                if place.links:
                    return min(place.links, key=lambda link: link.waiting)
                raise place.breaker.refusal(loop.time(), url)
            place.dialling = asyncio.create_task(self._dial(url, place, ticket))
            place.dialling.add_done_callback(_heard)
        # A caller that is cancelled must not take the dial away from the others.
        return await asyncio.shield(place.dialling)

    async def close(self) -> None:
        """Every link says goodbye."""
        self._closed = True
        places, self._places = list(self._places.values()), {}
        for place in places:
            if place.dialling is not None:
                place.dialling.cancel()
        links = [link for place in places for link in place.links]
        for link in links:
            link.close()
        dials = [place.dialling for place in places if place.dialling is not None]
        await asyncio.gather(*dials, *(link.wait_closed() for link in links), return_exceptions=True)

    async def __aenter__(self) -> Pool:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _place(self, url: str) -> _Place:
        place = self._places.get(url)
        if place is None:
            if len(self._places) >= self._addresses_max:
                self._forget_idle()
            if len(self._places) >= self._addresses_max:
                raise ResourceError(
                    "RESOURCE_EXHAUSTED",
                    f"The pool has links to {self._addresses_max} addresses, which is the limit",
                    limit="addresses_max",
                    addresses_max=self._addresses_max,
                )
            place = self._places[url] = _Place(self._policy)
        return place

    def _forget_idle(self) -> None:
        for url, place in list(self._places.items()):
            if place.dialling is None and all(link.closed for link in place.links):
                del self._places[url]

    async def _dial(self, url: str, place: _Place, ticket: int) -> Link:
        loop = asyncio.get_running_loop()
        try:
            link = await dial(
                url,
                self._accept,
                limits=self._limits,
                tls=self._tls,
                headers=self._headers,
                timeout_s=self._timeout_s,
            )
        except MpregError:
            place.breaker.failed(ticket, loop.time())
            raise
        except BaseException:
            place.breaker.abandoned(ticket)
            raise
        else:
            place.breaker.succeeded(ticket, loop.time())
            if self._closed:
                link.close()
            place.links.append(link)
            return link
        finally:
            place.dialling = None


def _heard(dialling: asyncio.Task[Link]) -> None:
    """Whoever waited for it may have gone, and then nobody asks why it failed."""
    if not dialling.cancelled():
        dialling.exception()
