"""Writes what the docs quote from the source: the messages, the error codes, the settings.

scripts/docs            rewrite docs/messages.md and the marked tables of the other pages
scripts/docs --check    say which are not up to date, and fail
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect as mi

from mpreg.cli import COMMANDS
from mpreg.cli.functions import type_of
from mpreg.client import ClientSettings, RetryPolicy
from mpreg.errors import CODES, MpregError
from mpreg.node import Settings
from mpreg.wire.codec import FAMILIES
from mpreg.wire.gossip import PAYLOADS, Gossip
from mpreg.wire.message import RoleMessage, TypeMessage, WhatMessage
from mpreg.wire.schema import family_of, is_from_node

DOCS: Final = Path(__file__).resolve().parent
SETTINGS: Final[dict[str, type[msgspec.Struct]]] = {"node": Settings, "client": ClientSettings, "retry": RetryPolicy}
BASES: Final = (RoleMessage, TypeMessage, WhatMessage)
RULING: Final = re.compile(r" ?\((?:R-[A-Z]+\d+(?:, )?)+\)")
"""References to the rulings help who reads the source, not who reads the docs."""

HEAD: Final = """\
# Messages

Generated from the source by `scripts/docs`; `mpreg schema` prints the same as JSON Schema, `mpreg schema asyncapi` as
AsyncAPI 3. How messages travel is in [the protocol](protocol.md).

Every message may carry `version` ("2.0" if absent) and `timestamp` (seconds since 1970). A field that is not required
may be left out. Unknown fields are ignored.
"""


def main() -> None:
    stale = [path for path, text in wanted().items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        if stale:
            sys.exit(f"not up to date, run scripts/docs: {', '.join(path.name for path in stale)}")
        return
    for path in stale:
        path.write_text(wanted()[path])
        sys.stdout.write(f"wrote {path.relative_to(DOCS.parent)}\n")


def wanted() -> dict[Path, str]:
    """Every page that has something generated in it, as it should be."""
    pages = {DOCS / "messages.md": "\n".join(reference())}
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text()
        if "<!-- end -->" in text:
            text = re.sub(r"<!-- settings: (\w+) -->\n.*?<!-- end -->", _settings_block, text, flags=re.DOTALL)
            pages[path] = re.sub(r"<!-- commands -->\n.*?<!-- end -->", _commands_block, text, flags=re.DOTALL)
    return pages


# Messages and codes.


def reference() -> Iterator[str]:
    yield HEAD
    known: set[Any] = set()
    for area, messages in areas().items():
        yield f"## {area}\n"
        for message in messages:
            yield from _message(message)
        for part in parts(messages):
            if part not in known:
                known.add(part)
                yield from _struct(part, f"### {part.__name__}\n", doc_of(part))
    yield "## Error codes\n"
    yield "| code | class | repeat? | |"
    yield "|---|---|---|---|"
    classes = {cls.prefix: cls.__name__ for cls in MpregError.__subclasses__()}
    for code, known in sorted(CODES.items()):
        name = classes[code.partition("_")[0] + "_"]
        yield f"| `{code}` | `{name}` | {'yes' if known.retryable else 'no'} | {known.meaning} |"
    yield ""


def areas() -> dict[str, list[Any]]:
    """The messages by the file that declares them: the first line of its docstring is the title."""
    found: dict[str, list[Any]] = {}
    for family in FAMILIES.values():
        for message in family:
            doc = inspect.getdoc(sys.modules[message.__module__]) or message.__module__
            found.setdefault(RULING.sub("", re.split(r"[.:;](?:\s|$)", doc)[0]), []).append(message)
    return found


def parts(messages: list[Any]) -> list[Any]:
    """The structs inside of these messages, in the order in which they are met, but for payloads."""
    found: list[Any] = []
    payloads = [payload for message in messages if (payload := payload_of(message)) is not None]

    def walk(info: mi.Type) -> None:
        if isinstance(info, mi.StructType):
            if info.cls in found:
                return
            if info.cls not in messages and info.cls not in payloads:
                found.append(info.cls)
            for field in info.fields:
                walk(field.type)
            return
        for name in ("type", "item_type", "key_type", "value_type"):
            inner = getattr(info, name, None)
            if isinstance(inner, mi.Type):
                walk(inner)
        for name in ("types", "item_types"):
            for inner in getattr(info, name, ()):
                walk(inner)

    for message in messages:
        walk(mi.type_info(message))
        if message is Gossip:
            for payload in PAYLOADS.values():
                walk(mi.type_info(payload))
    return found


def payload_of(message: Any) -> Any:
    """The struct in `payload` of a message that is told by its `type`."""
    for field in msgspec.structs.fields(message):
        if field.name == "payload" and isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            return field.type
    return None


def doc_of(struct: Any) -> str:
    """Its own docstring, not an inherited one."""
    return inspect.cleandoc(vars(struct).get("__doc__") or "")


def _message(message: Any) -> Iterator[str]:
    family, tag = family_of(message), message.__struct_config__.tag
    way = "from a node" if is_from_node(message) else "to a node"
    payload = payload_of(message)
    doc = doc_of(message) or (doc_of(payload) if payload is not None else "")
    yield from _struct(message, f"### `{tag}`\n", f"`{family}` is `{tag}`, {way}. {doc}".rstrip())


def _struct(struct: Any, title: str, doc: str) -> Iterator[str]:
    yield title
    yield RULING.sub("", doc) + "\n"
    rows = list(_rows(struct, ""))
    if rows:
        yield f"| {'item of the array' if struct.__struct_config__.array_like else 'field'} | type | required | |"
        yield "|---|---|---|---|"
        yield from rows
        yield ""


def _rows(struct: Any, prefix: str) -> Iterator[str]:
    _, components = msgspec.json.schema_components([struct])
    schema = components[struct.__name__]
    if "prefixItems" in schema:  # an array instead of an object
        items = dict(zip(struct.__struct_encode_fields__, schema["prefixItems"], strict=True))
        schema = {"properties": items, "required": list(items)[: schema.get("minItems", 0)]}
    said = field_docs(struct)
    base = {name for each in BASES if issubclass(struct, each) for name in each.__struct_fields__} - {"u"}
    for name, property_ in schema["properties"].items():
        if name in base or name == struct.__struct_config__.tag_field:
            continue
        required = "yes" if name in schema.get("required", ()) else ""
        if name == "payload" and (payload := payload_of(struct)) is not None:
            yield from _rows(payload, "payload.")
            continue
        yield f"| `{prefix}{name}` | {kind_of(property_)} | {required} | {said.get(name, '')} |"


def kind_of(schema: dict[str, Any]) -> str:
    """`string, at most 256` from a JSON Schema."""
    text = type_of(schema).replace("|", "\\|")
    limits = {
        "minimum": "at least {}",
        "exclusiveMinimum": "over {}",
        "maximum": "at most {}",
        "exclusiveMaximum": "under {}",
        "minLength": "at least {}",
        "maxLength": "at most {}",
        "maxItems": "at most {}",
    }
    bounds = [limits[key].format(f"{value:,}") for key, value in schema.items() if key in limits]
    return ", ".join((text, *bounds))


def field_docs(struct: type) -> dict[str, str]:
    """The string literals behind the fields of a class, on one line each."""
    found: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if not base.__module__.startswith("mpreg."):
            continue
        (declared,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(declared, ast.ClassDef)
        for field, after in zip(declared.body, declared.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
                text = ast.literal_eval(after.value) if isinstance(after.value, ast.Constant) else ""
                found[field.target.id] = _plain(str(text))
    return found


def _plain(text: str) -> str:
    """On one line, and without the rulings that it quotes."""
    text = RULING.sub("", " ".join(text.split()))
    return re.sub(r"^R-[A-Z]+\d+[:.] ?(.)", lambda found: found[1].upper(), text).replace("|", "\\|")


# Settings.


def _settings_block(found: re.Match[str]) -> str:
    rows = "\n".join(settings_rows(SETTINGS[found[1]](), ""))
    return f"<!-- settings: {found[1]} -->\n| setting | default | |\n|---|---|---|\n{rows}\n<!-- end -->"


def _commands_block(_: re.Match[str]) -> str:
    rows = "\n".join(f"| `{name}` | {does} |" for name, (_, does) in COMMANDS.items())
    return f"<!-- commands -->\n| command | does |\n|---|---|\n{rows}\n<!-- end -->"


def settings_rows(settings: msgspec.Struct, prefix: str) -> Iterator[str]:
    said = field_docs(type(settings))
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if isinstance(value, msgspec.Struct):
            yield from settings_rows(value, f"{prefix}{name}.")
        else:
            yield f"| `{prefix}{name}` | {_default(value)} | {said.get(name, '')} |"


def _default(value: Any) -> str:
    if value is None or value in ("", ()):
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value >= 10_000:
        return f"{value:_}"
    return str(value) if isinstance(value, int | float) else f"`{getattr(value, 'value', value)}`"


if __name__ == "__main__":
    main()
