"""The way to a client: `async with connect(url) as mpreg`, or `client = await connect(url)`."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from types import TracebackType
from typing import Any, Final

import msgspec

from mpreg.client.client import Client
from mpreg.client.settings import ClientSettings
from mpreg.client.sources import Target, sources_of
from mpreg.transport import TlsFiles

DEFAULT_URL: Final = "ws://127.0.0.1:6666"


def connect(
    target: Target = DEFAULT_URL,
    *,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    tls: TlsFiles | None = None,
    settings: ClientSettings | None = None,
    **changes: Any,
) -> Connecting:
    """A client of the node at this address, of the first of several that can be reached, or of a `Node` in this
    process.

    The scheme chooses the transport: ws, wss, tcp or tcps. `token` goes out as the header `Authorization: Bearer …`.
    Any field of `ClientSettings` may be given as a keyword: `connect(url, timeout_s=5)`. Entering it raises
    `TRANSPORT_CONNECTION_REFUSED`, `TIMEOUT_CONNECT` or another `MpregError` if no node answers.
    """
    chosen = msgspec.structs.replace(settings or ClientSettings(), **changes)
    chosen = msgspec.convert(msgspec.structs.asdict(chosen), ClientSettings)
    all_headers = dict(headers or {})
    if token is not None:
        all_headers["Authorization"] = f"Bearer {token}"
    return Connecting(target, chosen, tls, all_headers)


class Connecting:
    """To be awaited, or entered with `async with`."""

    def __init__(
        self, target: Target, settings: ClientSettings, tls: TlsFiles | None, headers: Mapping[str, str]
    ) -> None:
        self._target = target
        self._settings = settings
        self._tls = tls
        self._headers = headers
        self._client: Client | None = None

    async def connected(self) -> Client:
        sources = sources_of(self._target, self._settings, self._tls, self._headers or None)
        client = Client(sources, self._settings)
        try:
            await client.start()
        except BaseException:
            await client.close()
            raise
        return client

    def __await__(self) -> Generator[Any, None, Client]:
        return self.connected().__await__()

    async def __aenter__(self) -> Client:
        self._client = await self.connected()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._client is not None
        await self._client.close()
