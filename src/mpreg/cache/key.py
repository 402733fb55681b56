"""What names a cached value (R-C1): namespace, identifier, version. Tags and dependencies are indexes, no identity.

Inside a node a key is the bytes that it has in the store, so that no level needs a second name for it:
`mpreg:cache:e:<namespace>:<version>:<identifier>`. All that belongs to one key is in that one store key, so its hash
slot is its own; an identifier with a `{tag}` chooses the slot, as anywhere in a cluster.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Any, Final

import msgspec

from mpreg.errors import CacheError

VERSION: Final = "v1"
NAMESPACE_BYTES_MAX: Final = 200
IDENTIFIER_BYTES_MAX: Final = 1024
VERSION_BYTES_MAX: Final = 64
LABEL_BYTES_MAX: Final = 512
"""Of a tag or a dependency."""
LABELS_MAX: Final = 64
"""Tags, and as many dependencies, of one entry."""

PREFIX: Final = b"mpreg:cache:e:"
_REFUSED_IN_NAMESPACE: Final = frozenset(":*{}")
_CONTROL: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
_KEYS_KEPT: Final = 65_536


class CacheKey(msgspec.Struct, frozen=True, order=True):
    """A checked key: made by `cache_key` or `parse_key`."""

    namespace: str
    identifier: str
    version: str = VERSION

    @property
    def reference(self) -> str:
        """How others name it as a dependency, and as another set: whatever its version."""
        return f"{self.namespace}:{self.identifier}"


def invalid(path: str, why: str, **details: Any) -> CacheError:
    """`path` is that of the field in the message."""
    return CacheError("CACHE_INVALID", f"{path}: {why}", path=path, **details)


def cache_key(namespace: str, identifier: str, version: str = VERSION, *, path: str = "$.key") -> CacheKey:
    check_namespace(namespace, f"{path}.namespace")
    _check(identifier, f"{path}.identifier", IDENTIFIER_BYTES_MAX)
    _check(version, f"{path}.version", VERSION_BYTES_MAX)
    if ":" in version:
        raise invalid(f"{path}.version", f"no colon: {version!r:.80}")
    return CacheKey(namespace, identifier, version)


@lru_cache(maxsize=_KEYS_KEPT)
def store_key(namespace: str, identifier: str, version: str = VERSION) -> bytes:
    """The bytes of a key that is checked here. Remembered, for most requests are for the same few keys."""
    cache_key(namespace, identifier, version)
    return PREFIX + f"{namespace}:{version}:{identifier}".encode()


def key_bytes(key: CacheKey) -> bytes:
    return PREFIX + f"{key.namespace}:{key.version}:{key.identifier}".encode()


def parse_key(key: bytes) -> CacheKey:
    """The way back. `ValueError` for bytes that are no key of the cache."""
    if not key.startswith(PREFIX):
        raise ValueError(f"not a key of the cache: {key[:60]!r}")
    namespace, version, identifier = key[len(PREFIX) :].decode().split(":", 2)
    return CacheKey(namespace, identifier, version)


def namespace_of(key: bytes) -> str:
    return key[len(PREFIX) : key.index(b":", len(PREFIX))].decode()


def reference_of(key: bytes) -> str:
    """`CacheKey.reference` of the bytes of a key."""
    namespace, _, identifier = key[len(PREFIX) :].decode().split(":", 2)
    return f"{namespace}:{identifier}"


def parse_reference(reference: str, *, path: str) -> CacheKey:
    """`namespace:identifier`, as in `other_sets`."""
    namespace, colon, identifier = reference.partition(":")
    if not colon:
        raise invalid(path, f"a reference is namespace:identifier, not {reference!r:.100}")
    return cache_key(namespace, identifier, path=path)


def check_namespace(namespace: str, path: str) -> str:
    _check(namespace, path, NAMESPACE_BYTES_MAX)
    if not _REFUSED_IN_NAMESPACE.isdisjoint(namespace) or any(c.isspace() for c in namespace):
        raise invalid(path, f"no colon, star, brace or white space: {namespace!r:.100}")
    if "" in namespace.split("."):
        raise invalid(path, f"an empty level: {namespace!r:.100}")
    return namespace


def check_labels(labels: tuple[str, ...], path: str) -> tuple[str, ...]:
    """Tags or dependencies: each once, in the order given."""
    if len(labels) > LABELS_MAX:
        raise invalid(path, f"{len(labels)} of them; the limit is {LABELS_MAX}", limit=LABELS_MAX)
    for at, label in enumerate(labels):
        _check(label, f"{path}[{at}]", LABEL_BYTES_MAX)
    return tuple(dict.fromkeys(labels))


def _check(text: str, path: str, bytes_max: int) -> None:
    if not text:
        raise invalid(path, "is empty")
    if len(text) > bytes_max or len(text.encode(errors="replace")) > bytes_max:
        raise invalid(path, f"has over {bytes_max} bytes", limit=bytes_max)
    if not text.isprintable() and any(unicodedata.category(c) in _CONTROL for c in text):
        raise invalid(path, f"has a control character: {text!r:.100}")
