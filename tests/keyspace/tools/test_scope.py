"""A purge names the root of what it deletes."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpreg.errors import KeyspaceError
from mpreg.keyspace.pattern import escape_glob
from mpreg.keyspace.tools.scope import check_scope, literal_head


@pytest.mark.parametrize(
    "pattern", ["", "*", "**", "?*", "*:*", "[a-z]*", "[p]oppo:*", "*temp*", "p*", "poppo*", "?oppo:*", ":*", "\\"]
)
def test_a_pattern_without_a_root_of_its_own_is_refused(pattern: str) -> None:
    if pattern == "\\":
        check_scope(pattern.encode())  # one key, of that name
        return
    with pytest.raises(KeyspaceError) as caught:
        check_scope(pattern.encode())
    assert caught.value.code == "KEYSPACE_PURGE_REFUSED"
    assert caught.value.details["pattern"] == pattern


@pytest.mark.parametrize(
    "pattern", ["poppo:*", "poppo:temp:*", "issue_lock_*", "MUF/*/KEEP/*", "one", "o\\*ne", "a\\*:?"]
)
def test_a_pattern_with_a_root_or_of_one_key_is_taken(pattern: str) -> None:
    check_scope(pattern.encode())


def test_where_roots_are_declared_others_are_out_of_reach() -> None:
    check_scope(b"app:temp:*", [b"app:", b"web:"])
    for pattern in (b"other:*", b"ap*", b"application:*"):
        with pytest.raises(KeyspaceError, match="app:, web:"):
            check_scope(pattern, [b"app:", b"web:"])
    check_scope(b"other:1", [b"app:"])


def test_a_root_given_by_hand_overrules() -> None:
    check_scope(b"session*", root=b"session")
    check_scope(b"other:*", [b"app:"], root=b"other:")
    for pattern, root in ((b"*", b"session"), (b"sess*", b"session"), (b"other", b"session"), (b"a*", b"")):
        with pytest.raises(KeyspaceError):
            check_scope(pattern, root=root)


@given(st.binary(max_size=20))
def test_an_escaped_key_is_its_own_head(key: bytes) -> None:
    assert literal_head(escape_glob(key)) == (key, False)


@given(st.text("ab:*?", max_size=8), st.text("ab:", max_size=12))
def test_every_match_begins_with_the_head(pattern: str, key: str) -> None:
    head, wild = literal_head(pattern.encode())
    if fnmatch.fnmatchcase(key, pattern):
        assert key.encode().startswith(head)
        assert wild or key == pattern
