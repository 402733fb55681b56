"""What a function takes and returns: checks arguments against its type hints (R-R6) and describes it as JSON Schema.

Arguments are decoded straight from the wire into the types of the hints where a call is plain positional, which is
nearly always; anything else goes through plain data and `bind_values`.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from mpreg.errors import MpregError, RpcError
from mpreg.wire import codec
from mpreg.wire.encoding import JSON, MSGPACK, Encoding

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Decode = Callable[[Any], tuple[Any, ...]]

_NULL = {JSON: b"null", MSGPACK: b"\xc0"}
_NO_ARGS = {JSON: b"[]", MSGPACK: b"\x90"}
_NO_KWARGS = {JSON: (b"{}", b"null"), MSGPACK: (b"\x80", b"\xc0")}


class Signature:
    """Made once, when the function is first called or described."""

    def __init__(self, function: Callable[..., Any]) -> None:
        hints = _hints(function)
        self.parameters: dict[str, Parameter] = _parameters(function)
        self.types: dict[str, Any] = {name: _checkable(hints.get(name, Any)) for name in self.parameters}
        self.result: Any = _checkable(hints.get("return", Any))
        self._positional = [p.name for p in self.parameters.values() if p.kind in _POSITIONAL]
        self._rest = next((p.name for p in self.parameters.values() if p.kind is Parameter.VAR_POSITIONAL), None)
        self._keywords = next((p.name for p in self.parameters.values() if p.kind is Parameter.VAR_KEYWORD), None)
        self._decode_json = self._positional_decoder(msgspec.json)
        self._decode_msgpack = self._positional_decoder(msgspec.msgpack)

    def bind(self, args: Raw | UnsetType, kwargs: Raw | UnsetType, encoding: Encoding) -> Arguments:
        """The arguments, checked and converted; else `RPC_INVALID_ARGUMENT` with the `path` of the wrong one."""
        if self._decode_json is None or (kwargs is not UNSET and bytes(kwargs) not in _NO_KWARGS[encoding]):
            return self.bind_values(plain_args(args, encoding), plain_kwargs(kwargs, encoding), encoding)
        decode = self._decode_json if encoding is JSON else self._decode_msgpack
        assert decode is not None
        given: Raw | bytes = _NO_ARGS[encoding] if args is UNSET else args
        try:
            return decode(given), {}
        except msgspec.ValidationError as problem:
            if bytes(given) == _NULL[encoding]:
                return self.bind(UNSET, UNSET, encoding)
            raise self._invalid(problem, given, encoding) from None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            codec.decode_value(given, encoding)  # says what is wrong with the frame
            raise

    def bind_values(self, args: Sequence[Any], kwargs: Mapping[str, Any], encoding: Encoding) -> Arguments:
        """The same for arguments that are plain data already."""
        if len(args) > len(self._positional) and self._rest is None:
            most = len(self._positional)
            raise _error(f"Takes at most {most} positional arguments, got {len(args)}", f"args[{most}]")
        given: dict[str, Any] = {}
        for at, (name, value) in enumerate(zip(self._positional, args, strict=False)):
            given[name] = _convert(value, self.types[name], f"args[{at}]", encoding)
        rest = tuple(
            _convert(value, self.types[self._rest or ""], f"args[{at}]", encoding)
            for at, value in enumerate(args[len(self._positional) :], len(self._positional))
        )
        keywords: dict[str, Any] = {}
        for name, value in kwargs.items():
            parameter = self.parameters.get(name)
            path = f"kwargs.{name}"
            if name in given and parameter is not None and parameter.kind is not Parameter.POSITIONAL_ONLY:
                raise _error(f"The argument {name!r} is given twice", path)
            if parameter is not None and parameter.kind in _BY_NAME:
                keywords[name] = _convert(value, self.types[name], path, encoding)
            elif self._keywords is not None:
                keywords[name] = _convert(value, self.types[self._keywords], path, encoding)
            else:
                raise _error(f"There is no argument {name!r}", path)
        self._require(given, keywords)
        return (*given.values(), *rest), keywords

    def _require(self, given: dict[str, Any], keywords: dict[str, Any]) -> None:
        for at, name in enumerate(self._positional):
            if name in given or self.parameters[name].default is not Parameter.empty:
                continue
            if name not in keywords or self.parameters[name].kind is Parameter.POSITIONAL_ONLY:
                raise _error(f"The argument {name!r} is missing", f"args[{at}]")
        for name, parameter in self.parameters.items():
            needed = parameter.kind is Parameter.KEYWORD_ONLY and parameter.default is Parameter.empty
            if needed and name not in keywords:
                raise _error(f"The argument {name!r} is missing", f"kwargs.{name}")

    def _positional_decoder(self, module: Any) -> Decode | None:
        """From bytes to the tuple of positional arguments, where nothing else can be needed."""
        by_name_only = any(
            p.kind is Parameter.KEYWORD_ONLY and p.default is Parameter.empty for p in self.parameters.values()
        )
        if self._rest is not None or by_name_only:
            return None
        if all(self.parameters[name].default is Parameter.empty for name in self._positional):
            types = tuple(self.types[name] for name in self._positional)
            decode: Decode = module.Decoder(tuple[types]).decode  # type: ignore[valid-type]  # known at run time only
            return decode
        fields: list[Any] = []
        for at, name in enumerate(self._positional):
            default = self.parameters[name].default
            field = (f"a{at}", self.types[name])
            fields.append(field if default is Parameter.empty else (*field, _default(default)))
        row = msgspec.defstruct("Arguments", fields, array_like=True, forbid_unknown_fields=True, gc=False)
        decode_row = module.Decoder(row).decode
        astuple = msgspec.structs.astuple
        return lambda data: astuple(decode_row(data))

    def _invalid(self, problem: msgspec.ValidationError, args: Raw | bytes, encoding: Encoding) -> MpregError:
        text, path = codec.path_of(problem)
        if path == "$" and isinstance(values := codec.decode_value(args, encoding), list):
            try:
                self.bind_values(values, {}, encoding)
            except MpregError as counted:  # which argument is missing or too many
                return counted
        return _error(text, "args" + path.removeprefix("$"))

    def schema(self) -> dict[str, Any]:
        """`arguments`: an object of the parameters; `result`; as JSON Schema 2020-12."""
        kinds = [*self.types.values(), self.result]
        schemas, definitions = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
        by_name = dict(zip(self.types, schemas, strict=False))
        required = [
            p.name
            for p in self.parameters.values()
            if p.default is Parameter.empty and p.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        ]
        properties = {}
        for name, parameter in self.parameters.items():
            if parameter.kind is Parameter.VAR_POSITIONAL:
                properties[f"*{name}"] = {"type": "array", "items": by_name[name]}
            elif parameter.kind is Parameter.VAR_KEYWORD:
                properties[f"**{name}"] = {"type": "object", "additionalProperties": by_name[name]}
            else:
                properties[name] = {**by_name[name], **_described_default(parameter.default)}
        described: dict[str, Any] = {
            "arguments": {"type": "object", "properties": properties, "required": required},
            "result": schemas[-1],
        }
        if definitions:
            described["$defs"] = definitions
        return described


_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def _parameters(function: Callable[..., Any]) -> dict[str, Parameter]:
    try:
        return dict(inspect.signature(function).parameters)
    except ValueError:  # some built-in functions do not tell
        return {
            "args": Parameter("args", Parameter.VAR_POSITIONAL),
            "kwargs": Parameter("kwargs", Parameter.VAR_KEYWORD),
        }


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else getattr(function, "func", type(function).__call__)
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, TypeError, AttributeError):  # hints that exist for a type checker only
        return {}


def _checkable(hint: Any) -> Any:
    """The hint itself, or `Any` for a type that has no encoding."""
    try:
        msgspec.json.schema(hint)
        msgspec.msgpack.Decoder(hint)
    except (TypeError, RecursionError, NameError):
        return Any
    return hint


def _described_default(default: Any) -> dict[str, Any]:
    if default is Parameter.empty:
        return {}
    try:
        return {"default": msgspec.json.decode(msgspec.json.encode(default))}
    except (TypeError, ValueError, RecursionError):  # it has no encoding, so a schema can't name it
        return {}


def _default(value: Any) -> Any:
    return msgspec.field(default_factory=lambda: value)


def plain_args(args: Raw | UnsetType, encoding: Encoding) -> list[Any]:
    value = None if args is UNSET else codec.decode_value(args, encoding)
    if value is None:
        return []
    if not isinstance(value, list):
        raise _error("Expected an array", "args")
    return value


def plain_kwargs(kwargs: Raw | UnsetType, encoding: Encoding) -> dict[str, Any]:
    value = None if kwargs is UNSET else codec.decode_value(kwargs, encoding)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _error("Expected an object", "kwargs")
    if not all(isinstance(name, str) for name in value):
        raise _error("The names of arguments are strings", "kwargs")
    return value


def _convert(value: Any, hint: Any, path: str, encoding: Encoding) -> Any:
    if hint is Any:
        return value
    try:
        return msgspec.convert(value, hint, str_keys=encoding is JSON)
    except msgspec.ValidationError as problem:
        text, inner = codec.path_of(problem)
        raise _error(text, path + inner.removeprefix("$")) from None


def _error(message: str, path: str) -> RpcError:
    return RpcError("RPC_INVALID_ARGUMENT", f"{message} at {path}", path=path)
