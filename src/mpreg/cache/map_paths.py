"""Fields of a map within maps: `user.preferences.theme`. In the store a path is its names joined by NUL (lua/map.lua).

A dot within a name is written `\\.`, a backslash `\\\\`.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Any, Final

from mpreg.cache.key import invalid
from mpreg.cache.requests import packed, value_out
from mpreg.cache.settings import CacheSettings
from mpreg.errors import CacheError

FIELD_BYTES_MAX: Final = 1024
DEPTH_MAX: Final = 32
_NAME: Final = re.compile(r"(?:[^.\\]|\\[.\\])+")


def split(name: str, path: str) -> list[str]:
    """The names in a field path."""
    if not name or len(name.encode(errors="replace")) > FIELD_BYTES_MAX:
        raise invalid(path, f"a field has 1 to {FIELD_BYTES_MAX} bytes", limit=FIELD_BYTES_MAX)
    found, at = list[str](), 0
    while True:
        match = _NAME.match(name, at)
        if match is None or name[match.end() : match.end() + 1] not in ("", "."):
            raise invalid(path, f"an empty name, or a backslash before neither dot nor backslash: {name!r:.100}")
        found.append(re.sub(r"\\(.)", r"\1", match[0]))
        at = match.end()
        if at == len(name):
            break
        at += 1  # the dot
    for each in found:
        _check_name(each, path)
    if len(found) > DEPTH_MAX:
        raise invalid(path, f"at most {DEPTH_MAX} names", limit=DEPTH_MAX)
    return found


def _check_name(name: str, path: str) -> None:
    if not name or "\0" in name:
        raise invalid(path, "a name within a map is not empty and has no NUL")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise invalid(path, "a lone surrogate") from None


def stored(name: str, path: str) -> bytes:
    return "\0".join(split(name, path)).encode()


def shown(field: bytes) -> str:
    """The way back from `stored`."""
    names = field.rstrip(b"\0").decode(errors="replace").split("\0")
    return ".".join(name.replace("\\", "\\\\").replace(".", "\\.") for name in names)


def check_apart(paths: list[tuple[bytes, str]]) -> None:
    """Two updates of one request, one within the other, would depend on their order."""
    ordered = sorted(paths)
    for (outer, _), (inner, path) in pairwise(ordered):
        if inner == outer or inner.startswith(outer + b"\0"):
            raise invalid(path, "another update of the same request is of the same field, or of one around it")


def flat(field: bytes, value: Any, settings: CacheSettings, path: str) -> list[bytes | str]:
    """Triples for the script: a map is emptied, then filled field by field."""
    if not isinstance(value, dict):
        return ["s", field, packed(value, settings, path)]
    if field.count(b"\0") >= DEPTH_MAX:
        raise invalid(path, f"maps within maps, at most {DEPTH_MAX}", limit=DEPTH_MAX)
    found: list[bytes | str] = ["m", field, b""]
    for name, inside in value.items():
        if not isinstance(name, str):
            raise CacheError("CACHE_UNENCODABLE", f"{path}: a name within a map is text: {name!r:.60}", path=path)
        _check_name(name, path)
        found += flat(field + b"\0" + name.encode(), inside, settings, path)
    return found


def increment_in(value: Any, path: str, *, bare: bool) -> str | None:
    """`{"operation": "increment", "value": 1}`, or, `bare`, just the number. None for a value to be set."""
    if isinstance(value, dict) and value.get("operation") in ("increment", "decrement") and len(value) == 2:
        return number_text(value.get("value"), path, negate=value["operation"] == "decrement")
    if bare:
        return number_text(value, path)
    return None


def number_text(number: Any, path: str, *, negate: bool = False) -> str:
    """For Lua: a whole number has only digits."""
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise invalid(path, f"a number is expected, not {number!r:.60}")
    if isinstance(number, int) and abs(number) >= 2**53:
        raise CacheError("CACHE_OUT_OF_RANGE", f"{path}: whole numbers are exact up to 2^53", path=path, limit=2**53)
    number = -number if negate else number
    return str(number) if isinstance(number, int) else repr(number)


def nested(pairs: list[bytes], below: bytes) -> Any:
    """The value at `below` from the fields of the store that belong to it: the one, or all within a map."""
    fields = dict(zip(pairs[::2], pairs[1::2], strict=True))
    if below and below in fields:
        return value_out(fields[below])
    start = len(below) + 1 if below else 0
    whole: dict[str, Any] = {}
    for field, data in sorted(fields.items()):
        is_map = field.endswith(b"\0")
        names = field[start : -1 if is_map else None].decode().split("\0")
        if names == [""]:
            continue  # `below` itself
        at = whole
        for name in names[:-1]:
            at = at.setdefault(name, {})
        if is_map:
            at.setdefault(names[-1], {})
        else:
            at[names[-1]] = value_out(data)
    return whole
