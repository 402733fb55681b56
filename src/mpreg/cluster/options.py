"""What a node has to know to be one of a cluster."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mpreg.cluster.handshake import SECRET_BYTES_MIN
from mpreg.cluster.settings import LAN, ClusterSettings
from mpreg.errors import ConfigError
from mpreg.transport import TlsFiles
from mpreg.wire.limits import INTERNAL, Limits

CLUSTER_ID_MAX = 128


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    node_id: str
    join: tuple[str, ...] = ()
    """Where nodes of the cluster may be found: URLs, `file:PATH`, `dns:NAME:PORT`, `srv:NAME`."""
    advertise: tuple[str, ...] = ()
    """Where the others reach this node; its listeners if empty."""
    secret: bytes | None = None
    tls: TlsFiles | None = None
    figures: ClusterSettings = LAN
    limits: Limits = INTERNAL
    meta: dict[str, str] = {}


def read_secret(file: str) -> bytes:
    """The content of the file, without white space around it."""
    try:
        secret = Path(file).read_bytes().strip()
    except OSError as problem:
        raise ConfigError(
            "CONFIG_UNREADABLE",
            f"The cluster secret {file}: {problem.strerror}",
            file=file,
            setting="cluster_secret_file",
        ) from None
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(
            "CONFIG_INVALID",
            f"The cluster secret in {file} has {len(secret)} bytes; it needs {SECRET_BYTES_MIN} or more, best from a "
            "random generator",
            setting="cluster_secret_file",
        )
    return secret
