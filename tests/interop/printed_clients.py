"""The clients that the protocol note prints, kept in `printed/` as it prints them, and what has to change to run them.

Only names that their libraries have renamed since, and the address of the node, are replaced; each replacement must
find its text, so that a changed file fails loudly.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent
PRINTED = HERE / "printed"
NOTE_URL = "ws://localhost:6666"


def printed(name: str, *replacements: tuple[str, str]) -> str:
    text = (PRINTED / name).read_text()
    for old, new in replacements:
        assert text.count(old) == 1, f"{name} has {text.count(old)} times {old!r}"
        text = text.replace(old, new)
    return text
