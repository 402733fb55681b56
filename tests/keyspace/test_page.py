"""The page about declared keys is run as it stands, and what it lists is what there is."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mpreg.keyspace as keyspace
from mpreg.errors import CODES
from mpreg.keyspace.pattern import KEY_BYTES_MAX
from mpreg.keyspace.placeholder import KINDS, WORD_BYTES_MAX
from mpreg.keyspace.schema import dump, load_schema
from mpreg.keyspace.writing import ARGUMENTS_MAX, ELEMENTS_MAX
from mpreg.store import Store

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "keyspace.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)


def run_page() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    program = "\n".join(block for language, block in BLOCKS if language == "python")
    exec(compile(program, "keyspace.md", "exec", dont_inherit=True), names)
    return names


@pytest.mark.anyio
async def test_the_python_of_the_page_runs(store: Store) -> None:
    await run_page()["work"](store)


def test_the_schema_of_the_page_is_what_is_written() -> None:
    shown = json.loads(next(block for language, block in BLOCKS if language == "json"))
    load_schema(json.dumps(shown).encode())
    (written,) = json.loads(dump((run_page()["demo"],)))["keyspaces"]
    (space,) = shown["keyspaces"]
    assert {name: written[name] for name in ("name", "prefix", "separator", "about")} == {
        name: space[name] for name in ("name", "prefix", "separator", "about")
    }
    (family,) = space["families"]
    own = next(one for one in written["families"] if one["name"] == family["name"])
    assert own | {"regex": family["regex"]} == family


@pytest.mark.parametrize("handle", re.findall(r"\| `(\w+Key)` \| ([^|]+) \|", PAGE), ids=lambda found: found[0])
def test_the_operations_of_a_handle_are_those_on_the_page(handle: tuple[str, str]) -> None:
    name, listed = handle
    own = {
        method
        for method, function in inspect.getmembers(getattr(keyspace, name), inspect.isfunction)
        if not method.startswith("_")
    }
    assert own == {word.strip() for word in listed.split(",")}


def test_kinds_limits_and_codes_are_those_on_the_page() -> None:
    for kind in KINDS:
        assert kind == "str" or f"`{{name:{kind}}}`" in PAGE
    for limit in (KEY_BYTES_MAX, ARGUMENTS_MAX, ELEMENTS_MAX, WORD_BYTES_MAX):
        assert f"{limit:,}" in PAGE
    for code in set(re.findall(r"KEYSPACE_\w+", PAGE)):
        assert code in CODES


def test_the_example_runs() -> None:
    done = subprocess.run(
        [sys.executable, "examples/poppo_keys.py"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.splitlines() == [
        "poppo:issue:status:123",
        "poppo:issues:completed:2025-06-19",
        "poppo:lock:issue:123 is lock:issue {'issue': 123}",
        "poppo:flags:debug:enabled is flags {'flag': 'debug:enabled'}",
        "poppo:issue:statsu:123 is not declared",
    ]
