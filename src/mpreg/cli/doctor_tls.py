"""Whether the TLS files of a listener work: a handshake in memory, with a peer that trusts this very certificate."""

from __future__ import annotations

import ssl
import time

from mpreg.errors import TransportError
from mpreg.transport import TlsFiles

DAY_S = 86_400


def days_left(files: TlsFiles) -> int:
    """Until the certificate runs out. Raises `TRANSPORT_TLS` for files that are no use, or not in force now."""
    listener = files.for_listener()
    listener.verify_mode = ssl.CERT_NONE  # what clients show is not what is looked at here
    assert files.cert is not None
    dialler = ssl.create_default_context(cafile=files.cert)
    dialler.check_hostname = False
    dialler.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate is trusted for itself, not for its issuer
    try:
        shown = _handshake(listener, dialler)
    except ssl.SSLError as problem:
        reason = getattr(problem, "verify_message", "") or str(problem)
        raise TransportError("TRANSPORT_TLS", f"{files.cert}: {reason}", file=files.cert) from None
    return int((ssl.cert_time_to_seconds(str(shown["notAfter"])) - time.time()) // DAY_S)


def _handshake(listener: ssl.SSLContext, dialler: ssl.SSLContext) -> dict[str, object]:
    """What the dialler has seen of the listener's certificate."""
    to_listener, to_dialler = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        dialler.wrap_bio(to_dialler, to_listener, server_side=False),
        listener.wrap_bio(to_listener, to_dialler, server_side=True),
    ]
    left = set(ends)
    while left:
        for end in ends:
            try:
                end.do_handshake()
                left.discard(end)
            except ssl.SSLWantReadError:
                continue
    shown = ends[0].getpeercert()
    assert shown is not None
    return dict(shown)
