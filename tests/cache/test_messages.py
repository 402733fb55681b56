"""What nodes and clients are told of a change: keys and versions, never values."""

from __future__ import annotations

import msgspec
import pytest

from mpreg.cache.coherence import Update, from_wire, meant, said, to_change, to_wire, value_hash
from mpreg.cache.key import cache_key, key_bytes
from mpreg.client.cache_near import Near, NearCache
from mpreg.errors import CacheError
from mpreg.wire.cache import CacheChange, CacheChanged, CacheRequestKey
from mpreg.wire.gossip import CacheUpdate

KEY = key_bytes(cache_key("compute.results", "sha256:abc", "v2"))
UPDATE = Update("put", KEY, 17, value_hash(b"\x01"))


def test_what_is_said_is_what_is_meant() -> None:
    assert meant(said("node-a", [UPDATE])) == ("node-a", [UPDATE])
    with pytest.raises(msgspec.DecodeError):
        meant(b"\x93nonsense")


def test_it_is_the_notes_cache_update() -> None:
    payload = to_wire(UPDATE)
    assert payload.key == CacheRequestKey(namespace="compute.results", identifier="sha256:abc", version="v2")
    assert payload.value_hash == "sha256:4bf5122f344554c53bde2ebb8cd2b7e3d1600ad631c385a5d7cce23c7785459a"
    assert from_wire(payload) == UPDATE


def test_an_update_as_the_note_prints_it_is_news_of_any_version() -> None:
    printed = {
        "operation": "put",
        "key": {"namespace": "n", "identifier": "a"},
        "value_hash": "sha256:def456...",
        "metadata": {},
        "vector_clock": {},
        "replication_sites": ["us-west-1", "eu-west-1"],
    }
    update = from_wire(msgspec.convert(printed, CacheUpdate))
    assert update.key == key_bytes(cache_key("n", "a"))
    assert update.version == 2**53


@pytest.mark.parametrize(
    "wrong", [{"key": {}}, {"key": 1}, {"key": {"namespace": "a:b", "identifier": "i"}}, {"operation": "burn"}]
)
def test_an_update_of_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(CacheError, match="CACHE_INVALID"):
        from_wire(CacheUpdate(**{"operation": "put", "key": {"namespace": "n", "identifier": "a"}, **wrong}))


def test_clients_are_told_the_key() -> None:
    change = to_change(UPDATE)
    assert change == CacheChange(
        operation="put", namespace="compute.results", identifier="sha256:abc", key_version="v2", version=17
    )


# --- near -------------------------------------------------------------------------------------------------------------

NEAR = ("n", "a", "v1")
VALUE = msgspec.Raw(b"\x01")


def told(version: int, *, lost: bool = False) -> CacheChanged:
    change = CacheChange(operation="put", namespace="n", identifier="a", version=version)
    return CacheChanged(changes=() if lost else (change,), lost=lost)


def near_cache() -> NearCache:
    near = NearCache(2, clock=lambda: 100.0)
    near.is_watched = True
    return near


def test_a_near_value_goes_when_something_newer_is_told() -> None:
    near = near_cache()
    near.asking(NEAR)
    near.answered(NEAR, Near(VALUE, 5, float("inf")))
    near.changed(told(5))
    assert near.get(NEAR) is not None, "that is the one that it holds"
    near.changed(told(6))
    assert near.get(NEAR) is None


@pytest.mark.parametrize("news", [told(6), told(0, lost=True)])
def test_what_changed_while_it_was_asked_for_is_not_held(news: CacheChanged) -> None:
    near = near_cache()
    near.asking(NEAR)
    near.changed(news)
    near.answered(NEAR, Near(VALUE, 5, float("inf")))
    assert near.get(NEAR) is None
    near.asking(NEAR)
    near.answered(NEAR, Near(VALUE, 6, float("inf")))
    assert near.get(NEAR) is not None
    assert near._asking == {}


def test_it_is_bounded_and_ends_with_the_ttl() -> None:
    near = near_cache()
    for n, until in enumerate((101.0, 99.0, 101.0, 101.0)):
        key = ("n", str(n), "v1")
        near.asking(key)
        near.answered(key, Near(VALUE, 1, until))
    assert len(near) == 2
    assert near.get(("n", "3", "v1")) is not None
    assert near.get(("n", "1", "v1")) is None


def test_nothing_is_held_while_nobody_tells() -> None:
    near = near_cache()
    near.is_watched = False
    near.asking(NEAR)
    near.answered(NEAR, Near(VALUE, 5, float("inf")))
    assert near.get(NEAR) is None
