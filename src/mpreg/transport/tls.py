"""Certificates as files, and the TLS contexts made from them: TLS 1.2 and newer, names and chains always checked."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NoReturn

import msgspec

from mpreg.errors import TransportError


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """PEM files. A listener needs `cert` and `key`; a dialler needs `ca` unless the system trusts the peer's issuer."""

    cert: str | None = None
    """This side's certificate, followed by intermediate ones if there are any."""
    key: str | None = None
    ca: str | None = None
    """Who issued the certificates that are trusted of the other side."""
    require_client_cert: bool = False
    """A listener refuses whoever shows no certificate issued by `ca`."""
    server_name: str | None = None
    """The name that the dialled peer's certificate must have, if it is not the host of the URL."""

    def for_listener(self) -> ssl.SSLContext:
        if self.cert is None or self.key is None:
            raise TransportError("TRANSPORT_TLS", "A TLS listener needs a certificate and its key, both PEM files")
        if self.require_client_cert and self.ca is None:
            raise TransportError("TRANSPORT_TLS", "To ask for client certificates, name the `ca` that issues them")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load_pair(context, self.cert, self.key)
        if self.ca is not None:
            _load_ca(context, self.ca)
            # A certificate that is shown is checked even where none is required: it may say who the client is.
            context.verify_mode = ssl.CERT_REQUIRED if self.require_client_cert else ssl.CERT_OPTIONAL
        return context

    def for_dialler(self) -> ssl.SSLContext:
        if (self.cert is None) is not (self.key is None):
            raise TransportError("TRANSPORT_TLS", "A client certificate needs its key, and a key its certificate")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.ca is not None:
            _load_ca(context, self.ca)
        else:
            context.load_default_certs()
        if self.cert is not None and self.key is not None:
            _load_pair(context, self.cert, self.key)
        return context


def _load_pair(context: ssl.SSLContext, cert: str, key: str) -> None:
    for file in (cert, key):
        _readable(file)
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except (ssl.SSLError, ValueError) as problem:
        raise _unusable(f"{cert}, {key}", problem) from None


def _load_ca(context: ssl.SSLContext, ca: str) -> None:
    _readable(ca)
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError as problem:
        raise _unusable(ca, problem) from None


def _readable(file: str) -> None:
    try:
        with Path(file).open("rb"):
            pass
    except OSError as problem:
        raise _unusable(file, problem) from None


def _no_password() -> NoReturn:
    # Without this OpenSSL would ask on the terminal.
    raise ValueError("the key is encrypted; store it without a passphrase, readable by its owner only")


def _unusable(file: str, problem: Exception) -> TransportError:
    reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    return TransportError("TRANSPORT_TLS", f"{file}: {reason}", file=file)
