"""Finds the node of a program: `app.py`, `app.py:node`, `package.module`, `package.module:node`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from mpreg.errors import ConfigError
from mpreg.node.node import Node

NAME = "node"
"""Of the variable that is served if the program has several nodes and none is asked for."""


def load_node(app: str) -> Node:
    """Raises `CONFIG_APP`, which says in one line what is wrong with the program."""
    place, colon, name = app.rpartition(":")
    if not colon:
        place, name = app, ""
    module = _from_file(Path(place)) if place.endswith(".py") or os.sep in place else _from_module(place)
    return _named(module, app, name) if name else _only(module, app)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        _refuse(str(path), "there is no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None:
        _refuse(str(path), "not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - whatever the program raises
        _raised(str(path), problem)
    return module


def _from_module(name: str) -> ModuleType:
    sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name is not None and (name == problem.name or name.startswith(problem.name + ".")):
            _refuse(name, f"no module is called {problem.name!r}")
        _raised(name, problem)
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - whatever the program raises
        _raised(name, problem)


def _named(module: ModuleType, app: str, name: str) -> Node:
    found: object = module
    for step in name.split("."):
        if not hasattr(found, step):
            _refuse(app, f"it has no {name!r}")
        found = getattr(found, step)
    if not isinstance(found, Node):
        _refuse(app, f"{name!r} is a {type(found).__name__}, not a Node")
    return found


def _only(module: ModuleType, app: str) -> Node:
    nodes = {name: value for name, value in vars(module).items() if isinstance(value, Node)}
    if NAME in nodes:
        return nodes[NAME]
    if len(set(map(id, nodes.values()))) != 1:
        several = f"it has several nodes, so say which: {', '.join(f'{app}:{name}' for name in nodes)}"
        _refuse(app, several if nodes else "it makes no Node")
    return next(iter(nodes.values()))


def _refuse(app: str, why: str) -> NoReturn:
    raise ConfigError("CONFIG_APP", f"{app}: {why}", app=app)


def _raised(app: str, problem: BaseException) -> NoReturn:
    frames = traceback.extract_tb(problem.__traceback__)
    own = [frame for frame in frames if "importlib" not in frame.filename and frame.filename != __file__]
    where = f" at {own[-1].filename}:{own[-1].lineno}" if own else ""
    if isinstance(problem, SyntaxError):
        where = f" at {problem.filename}:{problem.lineno}"
    _refuse(app, f"{type(problem).__name__}: {problem}{where}")
