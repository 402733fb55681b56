"""Join, suspect, refute, die, rejoin, leave: line by line as the files say."""

from __future__ import annotations

import pytest
from tests.cluster.transcript import FOLDER, Transcript

FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("name", [file.stem for file in FILES])
def test_the_machine_does_what_the_transcript_says(name: str) -> None:
    text = (FOLDER / f"{name}.txt").read_text()
    assert Transcript().play(text) == text


def test_there_is_a_transcript_of_each_way_of_coming_and_going() -> None:
    assert {file.stem for file in FILES} >= {"join", "suspect", "refute", "die", "rejoin", "leave"}
