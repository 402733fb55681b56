"""Where a client's links come from: addresses, or a node in the same process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from mpreg.client.settings import ClientSettings
from mpreg.errors import TransportError
from mpreg.transport import Accept, Link, TlsFiles, dial


class Attachable(Protocol):
    """A running `Node`, as far as a client needs it."""

    def attach(self, accept: Accept) -> Link: ...


Target = str | Sequence[str] | Attachable
"""What `connect` takes."""


class Source(Protocol):
    async def dial(self, accept: Accept) -> Link:
        """Raises `MpregError`."""


class Address:
    def __init__(
        self, url: str, settings: ClientSettings, tls: TlsFiles | None, headers: Mapping[str, str] | None
    ) -> None:
        self.url = url
        self._settings = settings
        self._tls = tls
        self._headers = headers

    def at(self, url: str) -> Address:
        """The same for another node."""
        return Address(url, self._settings, self._tls, self._headers)

    async def dial(self, accept: Accept) -> Link:
        return await dial(
            self.url,
            accept,
            limits=self._settings.limits,
            tls=self._tls,
            headers=self._headers,
            timeout_s=self._settings.connect_timeout_s,
        )


class InProcess:
    """Without sockets, for tests and for programs that are a node themselves."""

    def __init__(self, node: Attachable) -> None:
        self._node = node

    async def dial(self, accept: Accept) -> Link:
        try:
            return self._node.attach(accept)
        except RuntimeError as problem:
            raise TransportError("TRANSPORT_CONNECTION_REFUSED", str(problem)) from None


def sources_of(
    target: Target, settings: ClientSettings, tls: TlsFiles | None, headers: Mapping[str, str] | None
) -> list[Source]:
    """Raises `ValueError` for no address at all."""
    if isinstance(target, str):
        return [Address(target, settings, tls, headers)]
    if isinstance(target, Sequence):
        if not target:
            raise ValueError("connect needs at least one address")
        return [Address(url, settings, tls, headers) for url in target]
    return [InProcess(target)]
