"""Commands that use each other's results, written as plain Python.

    total = command("add", 1, 2)
    label = command("format", total, unit="EUR")
    await mpreg.request(label)

A command as an argument, or a part of one (`total["sum"][0]`), stands for its result; the node runs what it needs
first. Names and references (R-R2) are made here, and strings that only look like references are kept from being read
as such.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, Generic, TypeVar, overload
from uuid import UUID

import msgspec
from msgspec import UNSET

from mpreg.errors import RpcError
from mpreg.wire.rpc import Command

COMMANDS_MAX: Final = 1_000
_MARKS: Final = ("$ref", "$literal")
_NATIVE: Final = (bytes, bytearray, memoryview, datetime, date, time, timedelta, Decimal, UUID)
_SCALARS: Final = (bool, int, float, *_NATIVE)

T = TypeVar("T")


class Reference:
    """A command's result, or what is found in it at a path."""

    __slots__ = ("command", "path")

    def __init__(self, command: CommandBuilder[Any] | None, path: tuple[str, ...]) -> None:
        self.command: CommandBuilder[Any] = self if command is None else command  # type: ignore[assignment]  # a builder
        self.path = path

    def __getitem__(self, key: str | int) -> Reference:
        """A field, or an item by its index. Raises `ValueError` for a key that a path can't express."""
        step = str(key)
        if not step or "." in step or (isinstance(key, int) and key < 0):
            raise ValueError(f"{key!r}: a step into a result is a name without dots, or an index from the start")
        return Reference(self.command, (*self.path, step))

    def __iter__(self) -> Any:
        raise TypeError("a result is not known yet, so it can't be iterated")


class CommandBuilder(Reference, Generic[T]):
    """One call of a request. Made by `command`."""

    __slots__ = ("args", "fun", "kwargs", "locs", "name", "result_type")

    def __init__(
        self,
        fun: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None,
        locs: Iterable[str],
        result_type: Any,
    ) -> None:
        super().__init__(None, ())
        self.fun = fun
        self.args = args
        self.kwargs = kwargs
        self.name = name
        self.locs = locs_of(locs)
        self.result_type = result_type

    def needs(self) -> Iterator[CommandBuilder[Any]]:
        """The commands that its arguments refer to."""
        yield from _commands_in(self.args)
        yield from _commands_in(self.kwargs)

    def __repr__(self) -> str:
        return f"<command {self.name or self.fun}>"


@overload
def command(
    fun: str,
    /,
    *args: Any,
    name: str | None = ...,
    locs: Iterable[str] = ...,
    result_type: type[T],
    **kwargs: Any,
) -> CommandBuilder[T]: ...


@overload
def command(
    fun: str,
    /,
    *args: Any,
    name: str | None = ...,
    locs: Iterable[str] = ...,
    result_type: Any = ...,
    **kwargs: Any,
) -> CommandBuilder[Any]: ...


def command(
    fun: str,
    /,
    *args: Any,
    name: str | None = None,
    locs: Iterable[str] = (),
    result_type: Any = Any,
    **kwargs: Any,
) -> CommandBuilder[Any]:
    """A call to be sent with `Client.request`; arguments may be other commands, or parts of their results.

    `name` is how errors call it. A function whose own keyword is `name`, `locs` or `result_type` takes it by position.
    """
    return CommandBuilder(fun, args, kwargs, name, locs, result_type)


def assemble(
    wanted: Sequence[CommandBuilder[Any]],
) -> tuple[dict[CommandBuilder[Any], str], tuple[Command, ...]]:
    """The names of all commands that `wanted` needs, and the commands as they go on the wire."""
    order: dict[CommandBuilder[Any], str] = {}
    pending = list(reversed(wanted))
    while pending:
        builder = pending.pop()
        if builder in order:
            continue
        order[builder] = ""
        pending.extend(reversed(list(builder.needs())))
    if len(order) > COMMANDS_MAX:
        raise ValueError(f"a request has at most {COMMANDS_MAX} commands, not {len(order)}")
    taken = {builder.name for builder in order if builder.name is not None}
    if len(taken) < sum(builder.name is not None for builder in order):
        raise ValueError("two commands of one request have the same name")
    for number, builder in enumerate(order):
        order[builder] = builder.name if builder.name is not None else _free_name(f"c{number}", taken)
    wire = _Wire(order)
    return order, tuple(wire.command(builder) for builder in order)


def single(fun: str, args: tuple[Any, ...], kwargs: dict[str, Any], locs: Iterable[str]) -> Command:
    """A request of one command, whose arguments are never references."""
    raw: Any = args or UNSET
    raw_kwargs: Any = kwargs or UNSET
    return Command("call", fun, raw, raw_kwargs, locs_of(locs) if locs else ())


def locs_of(locs: Iterable[str]) -> tuple[str, ...]:
    if isinstance(locs, str):
        raise ValueError("locs: a list of resources, not one string")
    return tuple(locs)


def _free_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _commands_in(value: Any) -> Iterator[CommandBuilder[Any]]:
    if isinstance(value, Reference):
        yield value.command
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _commands_in(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _commands_in(item)


class _Wire:
    """Arguments as they go on the wire: references written out, look-alikes escaped."""

    def __init__(self, names: Mapping[CommandBuilder[Any], str]) -> None:
        self._names = names
        self._known = frozenset(names.values())

    def command(self, builder: CommandBuilder[Any]) -> Command:
        if len(self._known) == 1:
            return Command(self._names[builder], builder.fun, *self._raw(builder.args, builder.kwargs), builder.locs)
        args = [self._value(item) for item in builder.args]
        kwargs = {key: self._value(item) for key, item in builder.kwargs.items()}
        return Command(self._names[builder], builder.fun, *self._raw(args, kwargs), builder.locs)

    @staticmethod
    def _raw(args: Any, kwargs: Any) -> tuple[Any, Any]:
        return args or UNSET, kwargs or UNSET

    def _value(self, value: Any) -> Any:
        if isinstance(value, Reference):
            return {"$ref": ".".join((self._names[value.command], *value.path))}
        if type(value) is str:
            return {"$literal": value} if self._looks_like_reference(value) else value
        if isinstance(value, Mapping):
            if len(value) == 1 and next(iter(value)) in _MARKS:
                return {"$literal": value}
            return {key: self._value(item) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._value(item) for item in value]
        if value is None or isinstance(value, _SCALARS):
            return value
        return self._value(_plain(value))

    def _looks_like_reference(self, text: str) -> bool:
        return any(text == name or text.startswith(name + ".") for name in self._known)


def _plain(value: Any) -> Any:
    """A struct or an enum as plain data: strings in it may look like references, too."""
    try:
        return msgspec.to_builtins(value, builtin_types=_NATIVE)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise RpcError("RPC_INVALID_ARGUMENT", f"The arguments can't be encoded: {problem}") from None
