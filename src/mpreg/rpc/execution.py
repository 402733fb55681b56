"""Runs a function of this node: async on the loop, sync in a thread, whatever it raises turned into an `RpcError`."""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from asyncio import CancelledError
from collections.abc import Awaitable
from typing import Any

from msgspec import Raw

from mpreg.errors import MpregError, RpcError
from mpreg.rpc.registry import Function
from mpreg.rpc.signature import Arguments
from mpreg.rpc.threads import Threads
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding
from mpreg.wire.rpc import Command

log = logging.getLogger(__name__)

TEXT_LENGTH_MAX = 10_000
"""Of what an exception says of itself, and of a traceback."""


class LocalFunction:
    """A `Provider` in this process."""

    __slots__ = ("_bind", "_bind_values", "_debug", "_function", "_threads", "waits")

    def __init__(self, function: Function, threads: Threads, debug: bool) -> None:
        self.waits = not function.is_async
        self._function = function
        self._bind = function.signature.bind
        self._bind_values = function.signature.bind_values
        self._threads = threads
        self._debug = debug

    def call(self, command: Command, encoding: Encoding, timeout_s: float) -> Awaitable[Raw]:
        return self._run(self._bind(command.args, command.kwargs, encoding), encoding)

    def call_plain(
        self, command: Command, args: list[Any], kwargs: dict[str, Any], encoding: Encoding, timeout_s: float
    ) -> Awaitable[Raw]:
        return self._run(self._bind_values(args, kwargs, encoding), encoding)

    async def _run(self, arguments: Arguments, encoding: Encoding) -> Raw:
        args, kwargs = arguments
        function = self._function
        # A call that finds no thread was not begun, which is what its error says.
        in_thread = None if function.is_async else self._threads.submit(function.call, args, kwargs)
        try:
            if in_thread is None:
                result = await function.call(*args, **kwargs)
            else:
                result = await in_thread
                if inspect.isawaitable(result):
                    result = await result
            return codec.encode_value(result, encoding)
        except MpregError as error:
            if error.state_changed is False:  # of what the function asked of others; what it did before, nobody knows
                error.state_changed = None
            raise
        except KeyboardInterrupt:
            raise
        except CancelledError as raised:
            if _is_being_cancelled():
                raise
            raise self._failed(raised) from None
        except BaseException as raised:  # noqa: BLE001 - a function that raises SystemExit does not end the node
            raise self._failed(raised) from None

    def _failed(self, raised: BaseException) -> RpcError:
        log.debug("%s raised", self._function.name, exc_info=raised)
        return failed(raised, self._debug)


def _is_being_cancelled() -> bool:
    """Told apart from a function that raises `CancelledError`, or awaits something that was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def failed(raised: BaseException, debug: bool) -> RpcError:
    """R-R6: the class name and the text of what the function raised. No traceback unless the node runs in debug."""
    error = RpcError(
        "RPC_FUNCTION_FAILED", _text(raised)[:TEXT_LENGTH_MAX], type=type(raised).__name__, state_changed=None
    )
    if debug:
        error.traceback = _traceback(raised)[-TEXT_LENGTH_MAX:]
    return error


def _text(raised: BaseException) -> str:
    try:
        return str(raised).encode("utf-8", "replace").decode()
    except BaseException:  # noqa: BLE001 - the function's own exception class may be broken in any way
        return "(the exception has no readable text)"


def _traceback(raised: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(raised)).encode("utf-8", "replace").decode()
    except BaseException:  # noqa: BLE001
        return "(the traceback can't be printed)"
