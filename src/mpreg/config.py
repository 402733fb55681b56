"""Settings from four places, the later over the earlier: the program, a TOML file, the environment, the command line.

A program describes its settings as one msgspec struct; `load` fills it, and every value is checked before anything
starts. The environment variable of the field `grace_s` is `MPREG_GRACE_S`; of `limits.frame_bytes_max`, in a nested
struct, `MPREG_LIMITS_FRAME_BYTES_MAX`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from mpreg.errors import ConfigError

PREFIX = "MPREG_"

T = TypeVar("T", bound=msgspec.Struct)

_PATH = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")


def load(
    defaults: T,
    *,
    file: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> T:
    """`defaults` with what the file, the environment and the overrides say; `None` among the overrides says nothing.

    Raises `ConfigError`, which names the setting and where its value came from.
    """
    settings = defaults
    if file is not None:
        settings = _merged(settings, _read(Path(file)), str(file), strict=True)
    if environment is not None:
        settings = _merged(settings, _from_environment(defaults, environment, PREFIX), "the environment", strict=False)
    if overrides is not None:
        given = {name: value for name, value in overrides.items() if value is not None}
        settings = _merged(settings, given, "the command line", strict=False)
    return settings


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as problem:
        raise ConfigError("CONFIG_UNREADABLE", f"{file}: {problem.strerror}", file=str(file)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError("CONFIG_UNREADABLE", f"{file}: {problem}", file=str(file)) from None


def _from_environment(struct: msgspec.Struct, environment: Mapping[str, str], prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in struct.__struct_fields__:
        name = prefix + field.upper()
        value = getattr(struct, field)
        if isinstance(value, msgspec.Struct):
            nested = _from_environment(value, environment, name + "_")
            if nested:
                found[field] = nested
        elif name in environment:
            found[field] = environment[name]
    return found


def _merged(settings: T, changes: Mapping[str, Any], source: str, *, strict: bool) -> T:
    try:
        merged = _overlay(msgspec.to_builtins(settings), changes, settings, "")
        return msgspec.convert(merged, type(settings), strict=strict)
    except msgspec.ValidationError as problem:
        text = str(problem)
        at = _PATH.search(text)
        setting = at["path"] if at else ""
        said = text[: at.start()] if at else text
        raise ConfigError(
            "CONFIG_INVALID", f"{source}: {setting or 'settings'}: {said}", setting=setting, source=source
        ) from None
    except _UnknownSetting as unknown:
        raise ConfigError(
            "CONFIG_INVALID", f"{source}: no setting is called {unknown.name!r}", setting=unknown.name, source=source
        ) from None


class _UnknownSetting(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def _overlay(values: dict[str, Any], changes: Mapping[str, Any], struct: msgspec.Struct, path: str) -> dict[str, Any]:
    for name, change in changes.items():
        if name not in struct.__struct_fields__:
            raise _UnknownSetting(path + name)
        current = getattr(struct, name)
        if isinstance(current, msgspec.Struct) and isinstance(change, Mapping):
            _overlay(values[name], change, current, f"{path}{name}.")
        else:
            values[name] = change
    return values
