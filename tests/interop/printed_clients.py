"""The clients that the protocol note prints, kept in `printed/` as it prints them, and what has to change to run them.

Only names that their libraries have renamed since, and the address of the node, are replaced; each replacement must
find its text, so that a changed file fails loudly.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PRINTED = HERE / "printed"
NOTE_URL = "ws://localhost:6666"


def printed(name: str, *replacements: tuple[str, str]) -> str:
    text = (PRINTED / name).read_text()
    for old, new in replacements:
        assert text.count(old) == 1, f"{name} has {text.count(old)} times {old!r}"
        text = text.replace(old, new)
    return text


def program(name: str, how: str, *, required: bool) -> str:
    """Its path; skips the test where it is not installed, unless the machine is one that must have it."""
    found = shutil.which(name)
    if found is None:
        reason = f"{name} is not installed: {how}"
        if required and os.environ.get("MPREG_REQUIRE_NODE") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return found
