"""Pages whose Python is one program, and whose commands say lines in no fixed order; the rest is in guides.py."""

from __future__ import annotations

import ast
import inspect
import re
import types
from collections.abc import Mapping
from typing import Any

from tests.guides import Guide


def blocks(page: str, language: str) -> list[str]:
    """The blocks of `docs/<page>` in this language."""
    return [block.text for block in Guide(f"docs/{page}").blocks if block.language == language]


async def run_python(page: str, names: dict[str, Any], instead: Mapping[str, str]) -> None:
    """All its Python, one block after the other, in one namespace; `instead` gives addresses that are there."""
    for number, block in enumerate(blocks(page, "python"), 1):
        for text, put in instead.items():
            block = block.replace(text, put)
        code = compile(block, f"{page}, block {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        made = types.FunctionType(code, names)()
        if inspect.isawaitable(made):
            await made


def commands(page: str) -> list[tuple[str, str]]:
    """Each command of `mpreg` with what it says."""
    found = Guide(f"docs/{page}").commands()
    return [(command.line, command.output) for command in found if command.line.startswith("mpreg ")]


def same_lines(output: str, said: str) -> bool:
    """The same lines, where `…` is anything. How wide a column is depends on what is in it, so blanks are not compared
    one by one; in which order keys are found, and how many bytes they take, is up to the server."""
    wanted, left = (
        [re.sub(r"\d+ B\b", "some B", " ".join(line.split())) for line in text.splitlines() if line]
        for text in (output, said)
    )
    for line in sorted(wanted, key=lambda line: "…" in line):
        found = next((one for one in left if re.fullmatch(re.escape(line).replace("…", ".*"), one)), None)
        if found is None:
            return False
        left.remove(found)
    return not left
