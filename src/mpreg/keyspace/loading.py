"""Where declarations come from: a schema file, a Python file, or a module; for tools that are told so by name."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from mpreg.errors import KeyspaceError
from mpreg.keyspace.catalog import Catalog
from mpreg.keyspace.keyspace import Keyspace
from mpreg.keyspace.schema import FILE_BYTES_MAX, load_schema


def load(names: Iterable[str]) -> Catalog:
    """`keys.json`, `keys.py`, `package.keys` or `package.keys:poppo`, several of them joined.

    A Python file or module is run, so name only what you trust. Of a module every `Keyspace` in it counts."""
    found: dict[int, Keyspace] = {}
    for name in names:
        for keyspace in load_one(name):
            found[id(keyspace)] = keyspace
    return Catalog(found.values())


def load_one(name: str) -> tuple[Keyspace, ...]:
    path = Path(name)
    if path.suffix == ".json" or (path.is_file() and path.suffix != ".py"):
        return load_schema(_read(path))
    if path.suffix == ".py" or "/" in name:
        return _keyspaces(_run(path), name, None)
    module, _, attribute = name.partition(":")
    return _keyspaces(_import(module), name, attribute or None)


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise KeyspaceError("KEYSPACE_INVALID_SCHEMA", f"{path} has over {FILE_BYTES_MAX} bytes", path=str(path))
        return path.read_bytes()
    except OSError as error:
        raise _not_found(str(path), f"{path}: {error.strerror}") from None


def _run(path: Path) -> ModuleType:
    name = f"_keys_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise _not_found(str(path), f"{path}: no such file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # a struct with annotations of its own module is looked up there
    try:
        spec.loader.exec_module(module)
    except KeyspaceError:
        raise
    except Exception as error:  # whatever the file does wrong is the answer to the question
        raise _broken(str(path), error) from error
    return module


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except KeyspaceError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise _not_found(name, f"there is neither a file nor a module {name!r:.200}") from None
        raise _broken(name, error) from error
    except Exception as error:  # as above
        raise _broken(name, error) from error


def _keyspaces(module: ModuleType, name: str, attribute: str | None) -> tuple[Keyspace, ...]:
    values = vars(module)
    if attribute is not None:
        one = values.get(attribute)
        if not isinstance(one, Keyspace):
            raise _not_found(name, f"{name}: {attribute} is no Keyspace")
        return (one,)
    found = {id(value): value for value in values.values() if isinstance(value, Keyspace)}
    if not found:
        raise _not_found(name, f"{name} declares no Keyspace")
    return tuple(found.values())


def _not_found(name: str, why: str) -> KeyspaceError:
    return KeyspaceError("KEYSPACE_SCHEMA_NOT_FOUND", why, schema=name)


def _broken(name: str, error: Exception) -> KeyspaceError:
    return KeyspaceError(
        "KEYSPACE_INVALID_SCHEMA", f"{name} can't be loaded: {type(error).__name__}: {error}", path=name
    )
