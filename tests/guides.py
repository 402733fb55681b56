"""The pages of docs/ as tests read them: programs with their output, commands with what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(
    r"(?:^`(?P<name>[\w.]+)`[^\n]*:\n\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)


class Block(NamedTuple):
    language: str
    text: str
    name: str | None
    """Of the file, where the line before the block gives it one."""


class Program(NamedTuple):
    name: str
    text: str
    output: str | None


class Command(NamedTuple):
    line: str
    output: str


class Guide:
    def __init__(self, page: str) -> None:
        self.page = page
        self.blocks = [
            Block(found["language"], found["text"], found["name"])
            for found in _BLOCK.finditer((ROOT / page).read_text())
        ]

    def programs(self) -> list[Program]:
        """Every Python block, with the `text` block right after it as its output."""
        followers = [*self.blocks[1:], None]
        return [
            Program(
                block.name or f"block_{number}.py",
                block.text,
                after.text if after is not None and after.language == "text" else None,
            )
            for number, (block, after) in enumerate(zip(self.blocks, followers, strict=True))
            if block.language == "python"
        ]

    def commands(self) -> list[Command]:
        """Every `$ …` line of the console blocks, with the lines below it."""
        found = []
        for block in self.blocks:
            if block.language == "console":
                for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                    line, _, output = part.partition("\n")
                    found.append(Command(line, output))
        return found


def matches(expected: str, said: str) -> bool:
    """The same text; `…` is anything, over lines as well."""
    parts = [re.escape(part) for part in expected.strip().split("…")]
    return re.fullmatch(r".*?".join(parts), said.strip(), re.DOTALL) is not None
