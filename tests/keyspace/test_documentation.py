"""The page that people read says what is declared."""

from __future__ import annotations

import pytest
from examples.poppo_keys import poppo

from mpreg.keyspace import Keyspace, Ttl, text
from mpreg.keyspace.documentation import duration, life, markdown


def test_every_family_and_channel_is_on_the_page() -> None:
    page = markdown([poppo])
    for declaration in poppo.declarations.values():
        assert f"\n## {declaration.name}\n" in page.replace("\\", "")
        assert f"`{declaration.shown}`" in page
        assert declaration.about in page
    for channel in poppo.channels.values():
        assert f"| `{channel.pattern.prefix}{channel.pattern.text}` |" in page


def test_what_a_reader_must_know_of_a_family() -> None:
    page = markdown([poppo])
    section = page[page.index("\n## process:heartbeat\n") : page.index("\n## processes:active\n")]
    assert "- lives: 30 min" in section
    assert "- leads to process:info: key.process is its process" in section
    assert "| `processId` | string or null |  |" in page
    assert "- protected: lock" in page


def test_text_that_markdown_would_read_as_markup_stays_text() -> None:
    space = Keyspace("a_b", about="*not* <b>bold</b>\n# no heading")
    space.string("x|y:{p:a|b}", text, about="a | b")
    page = markdown([space])
    assert "\\*not\\* \\<b\\>bold" in page
    assert "\n# no heading" not in page
    assert "| `x\\|y:{p:a\\|b}` | string | for good | a \\| b |" in page


@pytest.mark.parametrize(
    ("ttl", "words"),
    [
        (None, "for good"),
        (Ttl(seconds=1800), "30 min"),
        (Ttl(seconds=5, max_seconds=60), "5 s, at most 1 min"),
        (Ttl(seconds=60, renew="create"), "1 min from the first write"),
        (Ttl(seconds=86_400, required=False), "1 d or for good"),
        (Ttl(until="midnight", zone="Asia/Tokyo"), "until midnight (Asia/Tokyo)"),
    ],
)
def test_a_life_in_words(ttl: Ttl | None, words: str) -> None:
    assert life(ttl) == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.25, "250 ms"), (1, "1 s"), (90, "90 s"), (7200, "2 h"), (604_800, "7 d")]
)
def test_a_duration_in_the_largest_unit_that_is_exact(seconds: float, words: str) -> None:
    assert duration(seconds) == words
