"""Runs a function of this node: async on the loop, sync in a thread, whatever it raises turned into an `RpcError`."""

from __future__ import annotations

import inspect
import traceback
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Raw

from mpreg.errors import MpregError, RpcError
from mpreg.rpc.registry import Function
from mpreg.rpc.signature import Arguments
from mpreg.rpc.threads import Threads
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.rpc import Command

MESSAGE_LENGTH_MAX = 10_000
_NATIVE = (bytes, bytearray, memoryview, datetime, date, time, timedelta, Decimal, UUID)


class LocalFunction:
    """A `Provider` in this process."""

    __slots__ = ("_debug", "_function", "_threads")

    def __init__(self, function: Function, threads: Threads, debug: bool) -> None:
        self._function = function
        self._threads = threads
        self._debug = debug

    async def call(self, command: Command, encoding: Encoding, timeout_s: float) -> Raw:
        arguments = self._function.signature.bind(command.args, command.kwargs, encoding)
        return codec.encode_value(await self._run(arguments), encoding)

    async def call_plain(
        self, command: Command, args: list[Any], kwargs: dict[str, Any], encoding: Encoding, timeout_s: float
    ) -> Any:
        arguments = self._function.signature.bind_values(args, kwargs, encoding)
        return plain(await self._run(arguments))

    async def _run(self, arguments: Arguments) -> Any:
        args, kwargs = arguments
        function = self._function
        try:
            if function.is_async:
                return await function.call(*args, **kwargs)
            result = await self._threads.submit(function.call, args, kwargs)
            return await result if inspect.isawaitable(result) else result
        except MpregError:
            raise
        except (Exception, SystemExit) as raised:
            raise failed(raised, self._debug) from raised


def plain(result: Any) -> Any:
    """The result as it would arrive over the wire, so that another command can use it."""
    try:
        return msgspec.to_builtins(result, builtin_types=_NATIVE)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise RpcError("RPC_UNENCODABLE_RESULT", f"The value can't be encoded: {problem}") from None


def failed(raised: BaseException, debug: bool) -> RpcError:
    """R-R6: the class name and the text of what the function raised. No traceback unless the node runs in debug."""
    try:
        message = str(raised)
    except Exception:  # noqa: BLE001 - the function's own exception class may be broken
        message = "(the exception has no readable text)"
    error = RpcError(
        "RPC_FUNCTION_FAILED", message[:MESSAGE_LENGTH_MAX], type=type(raised).__name__, state_changed=None
    )
    if debug:
        error.traceback = "".join(traceback.format_exception(raised))[-MESSAGE_LENGTH_MAX:]
    return error
