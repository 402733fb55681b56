"""What `@node.subscriber` declares: which messages a function takes, and what it takes of them, by its type hints."""

from __future__ import annotations

import typing
from collections.abc import Callable
from inspect import Parameter
from typing import Any, Final, NamedTuple

from mpreg.pubsub import Handler, parse_pattern
from mpreg.rpc.registry import Function
from mpreg.rpc.signature import Signature
from mpreg.wire.received import Message

CONCURRENCY_MAX: Final = 10_000
BUFFER_MAX: Final = 1_000_000


def handler_of(
    call: Callable[..., Any], patterns: tuple[str, ...], exact: bool, concurrency: int, buffer: int | None, default: int
) -> Handler:
    """Raises `ValueError` for a function that can't take a message, `PUBSUB_INVALID_PATTERN` for a wrong pattern."""
    name = getattr(call, "__qualname__", type(call).__qualname__)
    if not callable(call):
        raise ValueError(f"{name}: not callable")
    buffer_max = default if buffer is None else buffer
    if not 1 <= concurrency <= CONCURRENCY_MAX or not 1 <= buffer_max <= BUFFER_MAX:
        raise ValueError(f"{name}: concurrency is 1 to {CONCURRENCY_MAX}, buffer 1 to {BUFFER_MAX}")
    if not patterns:
        raise ValueError(f"{name}: a subscriber needs at least one pattern")
    parsed = dict.fromkeys(parse_pattern(pattern, exact=exact) for pattern in patterns)
    taken = taken_by(name, call, Message)
    return Handler(
        name=name,
        patterns=tuple(levels for levels in parsed if levels is not None),
        call=call,
        is_async=taken.is_async,
        payload_type=taken.payload_type,
        takes_message=taken.takes_message,
        concurrency=concurrency,
        buffer_max=buffer_max,
    )


class Taken(NamedTuple):
    """What a function takes of a message."""

    is_async: bool
    takes_message: bool
    """Not only its payload."""
    payload_type: Any


def taken_by(name: str, call: Callable[..., Any], message_type: Any) -> Taken:
    """By its hints. Raises `ValueError` for a function that can't take a message."""
    function = Function(name, call, frozenset(), False)
    hint = _first_hint(name, function.signature)
    is_message = hint is Any or hint is message_type or typing.get_origin(hint) is message_type
    payload = next(iter(typing.get_args(hint)), Any) if is_message else hint
    return Taken(function.is_async, is_message, payload)


def _first_hint(name: str, signature: Signature) -> Any:
    taken = [each for each in signature.parameters.values() if each.kind in _POSITIONAL]
    needed = [each for each in signature.parameters.values() if _is_needed(each)]
    if not taken or len(needed) > 1 or (needed and needed[0] is not taken[0]):
        raise ValueError(f"{name}: it takes one argument, the message or its payload")
    first = taken[0]
    hint = signature.types[first.name]
    if hint is Any and first.annotation not in (Parameter.empty, Any, "Any", "typing.Any"):
        raise ValueError(f"{name}: nothing of the type {first.annotation} can be read from a message")
    return hint


_POSITIONAL: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL)


def _is_needed(parameter: Parameter) -> bool:
    variadic = parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return parameter.default is Parameter.empty and not variadic
