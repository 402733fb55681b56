import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpreg.apps.muf import names
from mpreg.apps.muf.names import Name

WORDS = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp", "Cn"], exclude_characters="/\xad"),
    min_size=1,
    max_size=40,
)


@given(unit=WORDS, id=WORDS, status=st.sampled_from(["REQ", "RES", "ERR", "KEEP"]))
def test_a_key_reads_back_as_what_it_was_made_of(unit: str, id: str, status: names.Status) -> None:
    name = Name(names.check("unit", unit), status, names.check("id", id))
    assert names.parse(name.key) == name


@pytest.mark.parametrize(
    "key",
    [
        "MUF/a/REQ/b/REQ/c",
        "MUF/a/b/REQ/c",
        "MUF//REQ/c",
        "MUF/a/REQ/",
        "MUF/a/res/1",
        "MUF/a/CLAIM/1",
        "muf/a/REQ/1",
        "MUF/a/REQ",
        "MUF/a b/REQ/1",
        "MUF/a/REQ/1\n",
    ],
)
def test_a_key_that_does_not_fit_is_nobodys(key: str) -> None:
    assert names.parse(key.encode()) is None


def test_a_key_that_is_no_text_is_nobodys() -> None:
    assert names.parse(b"MUF/\xff\xfe/REQ/1") is None


@pytest.mark.parametrize("name", ["", "a/b", "a b", "a\tb", "a\nb", "a\x00", "\u3000", "x" * 513, "\ud800", "漢" * 171])
def test_a_name_that_the_grammar_forbids_is_refused_before_any_command(name: str) -> None:
    with pytest.raises(ValueError, match="unit"):
        names.check("unit", name)


@pytest.mark.parametrize("name", [None, 7, b"bytes", True])
def test_a_name_is_text(name: object) -> None:
    with pytest.raises(ValueError, match="a str is expected"):
        names.check("id", name)


@pytest.mark.parametrize("name", ["FRONTEND", "x" * 512, "漢字ユニット", "a[1]", "*", "a?b", "back\\slash", "a:b.c-d"])
def test_names_that_must_work(name: str) -> None:
    assert names.check("unit", name) == name


def _matches(glob: bytes, key: bytes) -> bool:
    """Redis globs as far as our patterns use them: `*`, and escaped characters."""
    out = ""
    text = glob.decode()
    at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 1
            out += re.escape(text[at])
        else:
            out += ".*" if text[at] == "*" else re.escape(text[at])
        at += 1
    return re.fullmatch(out, key.decode(), re.DOTALL) is not None


@given(unit=WORDS, other=WORDS, id=WORDS)
def test_a_pattern_matches_its_unit_and_no_other(unit: str, other: str, id: str) -> None:
    glob = names.glob(unit, "RES")
    assert _matches(glob, Name(unit, "RES", id).key)
    if other != unit:
        assert not _matches(glob, Name(other, "RES", id).key)


def test_glob_characters_in_names_are_escaped() -> None:
    assert names.glob("a[1]*", "RES") == rb"MUF/a\[1\]\*/RES/*"


def test_ids_are_short_readable_and_never_the_same() -> None:
    made = {names.new_id("convert") for _ in range(1000)}
    assert len(made) == 1000
    assert all(re.fullmatch(r"convert\.\d{14}-[2-9a-z]{10}", id) for id in made)
    assert set(names.new_id()) <= set(string.ascii_lowercase + string.digits + "-")


def test_a_claim_is_a_key_of_the_grammar_however_long_the_request_is_named() -> None:
    request = Name("u" * 512, "REQ", "i" * 512)
    claim = names.claim("GROUP", request)
    assert names.parse(claim.key) == claim
    assert names.claim("GROUP", Name("FE", "REQ", "1")).key == b"MUF/GROUP/KEEP/claim.FE.1"
    assert names.claim("GROUP", request._replace(id="j" * 512)) != claim
