"""Where MPREG declares its own keys: a package that stores something has a module `keys`."""

from __future__ import annotations

from importlib.util import find_spec

PACKAGES = (
    # Not `cluster`: its module `keys` is about the state that nodes share, none of which is in the store.
    *("store", "rpc", "pubsub", "queues", "cache", "federation"),
    *("apps.muf", "apps.poppo", "apps.broker", "apps.matchmaker"),
)


def own_modules() -> tuple[str, ...]:
    return tuple(f"mpreg.{package}.keys" for package in PACKAGES if _exists(package))


def _exists(package: str) -> bool:
    try:
        return find_spec(f"mpreg.{package}.keys") is not None
    except ModuleNotFoundError:  # the package itself is not installed
        return False
