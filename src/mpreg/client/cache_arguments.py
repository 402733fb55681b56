"""The identifier of a call: the same in every process for the same function and the same arguments."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import Any

import msgspec

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def identifier_of(call: Callable[..., Any], name: str | None = None) -> Callable[..., str]:
    """A function of the arguments. They count as the function sees them: by name, defaults filled in."""
    signature = inspect.signature(call)
    prefix = name or f"{call.__module__}.{call.__qualname__}"

    def identifier(*args: Any, **kwargs: Any) -> str:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            data = _encode(bound.arguments)
        except (TypeError, ValueError, OverflowError, RecursionError) as problem:
            raise TypeError(f"the arguments of {prefix} make no key: {problem}") from None
        return f"{prefix}:{hashlib.sha256(data).hexdigest()[:32]}"

    return identifier
