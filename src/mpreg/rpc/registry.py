"""The functions that this node offers, by name and by the resources that they declare."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from mpreg.errors import RpcError
from mpreg.rpc.signature import Signature

NAME_BYTES_MAX = 256
FUNCTIONS_MAX = 100_000


class Function:
    """One registered callable."""

    __slots__ = ("_signature", "call", "doc", "idempotent", "is_async", "locs", "name")

    def __init__(self, name: str, call: Callable[..., Any], locs: frozenset[str], idempotent: bool) -> None:
        self.name = name
        self.call = call
        self.locs = locs
        self.idempotent = idempotent
        self.is_async = inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(type(call).__call__)
        self.doc = inspect.getdoc(call) or ""
        self._signature: Signature | None = None

    @property
    def signature(self) -> Signature:
        """Made when it is first needed: the hints may name classes that the program declares further down."""
        if self._signature is None:
            self._signature = Signature(self.call)
        return self._signature

    def describe(self) -> dict[str, Any]:
        """What `mpreg.functions` says of it."""
        return {
            "name": self.name,
            "doc": self.doc,
            "resources": sorted(self.locs),
            "idempotent": self.idempotent,
            **self.signature.schema(),
        }


class Registry:
    """One name may stand for several functions, as long as they declare different resources."""

    def __init__(self) -> None:
        self._functions: dict[str, list[Function]] = {}
        self.version = 0
        """Grows with each function; none is ever removed."""

    def add(
        self, call: Callable[..., Any], name: str | None = None, locs: Iterable[str] = (), idempotent: bool = False
    ) -> Function:
        """Raises `ValueError` for a name that is taken or can't be one, and for what can't be called remotely."""
        chosen: str = name or str(getattr(call, "__name__", ""))
        _check_name(chosen)
        if isinstance(locs, str):
            raise ValueError(f"{chosen}: locs is a list of resources, not one string")
        resources = frozenset(locs)
        if not all(isinstance(loc, str) and loc for loc in resources):
            raise ValueError(f"{chosen}: a resource is a string that is not empty")
        if inspect.isgeneratorfunction(call) or inspect.isasyncgenfunction(call):
            raise ValueError(f"{chosen}: a generator can't be called remotely; return a list")
        if not callable(call):
            raise ValueError(f"{chosen}: not callable")
        same = self._functions.get(chosen, [])
        if any(other.locs == resources for other in same):
            raise ValueError(f"{chosen}: already registered with the resources {sorted(resources)}")
        if len(self) >= FUNCTIONS_MAX:
            raise ValueError(f"a node has at most {FUNCTIONS_MAX} functions")
        function = Function(chosen, call, resources, idempotent)
        self._functions[chosen] = [*same, function]
        self.version += 1
        return function

    def look(self, name: str, locs: Sequence[str]) -> Function | None:
        """The same without an error."""
        same = self._functions.get(name)
        if same is None:
            return None
        if not locs:
            return same[0]
        wanted = frozenset(locs)
        return next((function for function in same if wanted <= function.locs), None)

    def has(self, name: str) -> bool:
        return name in self._functions

    def find(self, name: str, locs: Iterable[str]) -> Function:
        """The function with this name whose resources include `locs` (R-R4)."""
        same = self._functions.get(name)
        if not same:
            raise RpcError(
                "RPC_FUNCTION_NOT_FOUND", f"No function {name[:NAME_BYTES_MAX]!r}", function=name[:NAME_BYTES_MAX]
            )
        if not locs:
            return same[0]
        wanted = frozenset(locs)
        for function in same:
            if wanted <= function.locs:
                return function
        raise RpcError(
            "RPC_RESOURCE_NOT_FOUND",
            f"No function {name!r} has the resources {sorted(wanted)}",
            function=name,
            locs=sorted(wanted),
        )

    def __iter__(self) -> Iterator[Function]:
        return (function for same in self._functions.values() for function in same)

    def __len__(self) -> int:
        return self.version


def _check_name(name: str) -> None:
    if not name or name == "<lambda>":
        raise ValueError("A function needs a name")
    if len(name.encode()) > NAME_BYTES_MAX:
        raise ValueError(f"{name[:40]}…: a name has at most {NAME_BYTES_MAX} bytes")
    if any(ch.isspace() or not ch.isprintable() for ch in name):
        raise ValueError(f"{name!r}: a name has no white space or control characters")
