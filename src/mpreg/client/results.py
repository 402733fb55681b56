"""From the raw result in an answer to the type that the caller asked for, in one decode."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Raw

from mpreg.errors import MpregError, RpcError
from mpreg.wire import codec
from mpreg.wire.encoding import Encoding

_MODULES: Final[dict[Encoding, Any]] = {Encoding.JSON: msgspec.json, Encoding.MSGPACK: msgspec.msgpack}


@lru_cache(maxsize=1024)
def _decoder(result_type: Any, encoding: Encoding) -> Callable[[Raw], Any]:
    decode: Callable[[Raw], Any] = _MODULES[encoding].Decoder(result_type).decode
    return decode


@lru_cache(maxsize=1024)
def check_type(result_type: Any) -> None:
    """`TypeError` for what no result can be decoded to: before the call, which may have an effect."""
    for encoding in Encoding:
        _decoder(result_type, encoding)
    msgspec.json.schema(result_type)  # a decoder can be made of any class, but it takes nothing then


def decode_result(raw: Raw, encoding: Encoding, result_type: Any) -> Any:
    """`RPC_INVALID_RESULT` with the `path` of what does not fit. The function has run: its effect is there."""
    try:
        return _decoder(result_type, encoding)(raw)
    except msgspec.ValidationError as problem:
        text, path = codec.path_of(problem)
        raise _invalid(f"The result is not what was asked for: {text} at {path}", path) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise _invalid(f"The result can't be read: {problem}", "$") from None


def _invalid(text: str, path: str) -> MpregError:
    return RpcError("RPC_INVALID_RESULT", text, path=path, state_changed=True)
