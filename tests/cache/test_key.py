"""C1: a key is namespace, identifier, version; what can't be one is refused by the path of its field."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpreg.cache.key import (
    CacheKey,
    cache_key,
    check_labels,
    key_bytes,
    namespace_of,
    parse_key,
    parse_reference,
    reference_of,
    store_key,
)
from mpreg.cache.keys import ENTRY
from mpreg.errors import CacheError

levels = st.text(st.characters(categories=["L", "N"], exclude_characters=":*{}"), min_size=1, max_size=12)
namespaces = st.lists(levels, min_size=1, max_size=4).map(".".join)
identifiers = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=60)
versions = st.text(st.characters(categories=["L", "N", "P"], exclude_characters=":"), min_size=1, max_size=20)


@given(namespaces, identifiers, versions)
def test_the_bytes_of_a_key_are_those_that_are_declared_and_say_what_it_is(
    namespace: str, identifier: str, version: str
) -> None:
    key = cache_key(namespace, identifier, version)
    data = key_bytes(key)
    assert data == store_key(namespace, identifier, version)
    assert data == ENTRY.key(namespace=namespace, version=version, identifier=identifier)
    assert parse_key(data) == key
    assert namespace_of(data) == namespace
    assert reference_of(data) == key.reference == f"{namespace}:{identifier}"
    assert parse_reference(key.reference, path="$") == CacheKey(namespace, identifier)


def test_the_version_is_v1_if_none_is_given() -> None:
    assert cache_key("users", "1") == CacheKey("users", "1", "v1")


@pytest.mark.parametrize(
    ("namespace", "identifier", "version", "field"),
    [
        ("", "a", "v1", "namespace"),
        ("a..b", "a", "v1", "namespace"),
        (".a", "a", "v1", "namespace"),
        ("a:b", "a", "v1", "namespace"),
        ("a.*", "a", "v1", "namespace"),
        ("a b", "a", "v1", "namespace"),
        ("{a}", "a", "v1", "namespace"),
        ("n" * 201, "a", "v1", "namespace"),
        ("a", "", "v1", "identifier"),
        ("a", "i" * 1025, "v1", "identifier"),
        ("a", "ü" * 513, "v1", "identifier"),
        ("a", "x" * 10_000, "v1", "identifier"),
        ("a", "line\nbreak", "v1", "identifier"),
        ("a", "nul\0", "v1", "identifier"),
        ("a", "\ud800", "v1", "identifier"),
        ("a", "a", "", "version"),
        ("a", "a", "v:1", "version"),
        ("a", "a", "v" * 65, "version"),
    ],
)
def test_what_can_not_be_a_key_is_refused_by_its_field(
    namespace: str, identifier: str, version: str, field: str
) -> None:
    with pytest.raises(CacheError) as refused:
        cache_key(namespace, identifier, version)
    assert refused.value.code == "CACHE_INVALID"
    assert refused.value.details["path"] == f"$.key.{field}"
    with pytest.raises(CacheError):
        store_key(namespace, identifier, version)


def test_labels_are_bounded_and_each_counts_once() -> None:
    assert check_labels(("b", "a", "b"), "$.key.tags") == ("b", "a")
    for labels, path in (
        (("ok", ""), "$.key.tags[1]"),
        (("t" * 513,), "$.key.tags[0]"),
        (tuple("t") * 65, "$.key.tags"),
    ):
        with pytest.raises(CacheError) as refused:
            check_labels(labels, "$.key.tags")
        assert refused.value.details["path"] == path


@pytest.mark.parametrize("data", [b"", b"mpreg:other:x", b"mpreg:cache:e:alone", b"mpreg:cache:e:a:b"])
def test_other_keys_are_not_taken_for_keys_of_the_cache(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_key(data)
