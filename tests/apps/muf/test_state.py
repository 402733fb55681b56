"""KEEP: state of a unit, for all to see."""

from __future__ import annotations

import pytest
from tests.apps.muf.conftest import Units
from tests.apps.muf.peer import until_set

from mpreg.store import Store

pytestmark = pytest.mark.anyio


async def test_state_is_kept_for_a_day_or_as_long_as_said_or_for_ever(unit: Units, store: Store) -> None:
    one = await unit("UNIT")
    await one.keep("default", b"a")
    await one.keep("short", b"b", ttl=5)
    await one.keep("ever", b"c", ttl=None)
    assert 86_399 <= await store.command("TTL", "MUF/UNIT/KEEP/default") <= 86_400
    assert 4 <= await store.command("TTL", "MUF/UNIT/KEEP/short") <= 5
    assert await store.command("TTL", "MUF/UNIT/KEEP/ever") == -1


async def test_anyone_reads_what_a_unit_keeps(unit: Units) -> None:
    one, other = await unit("ONE", codec="json"), await unit("OTHER", codec="json")
    await one.keep("state", {"a": 1})
    assert await one.kept("state") == {"a": 1}
    assert await other.kept("state", unit="ONE") == {"a": 1}
    assert await other.kept("state") is None


async def test_watching_tells_the_value_now_and_what_comes(unit: Units, store: Store) -> None:
    one, other = await unit("ONE", codec="str"), await unit("OTHER", codec="str")
    await one.keep("state", "first")
    values = other.watch("state", unit="ONE")
    assert await anext(values) == "first"
    await one.keep("state", "second")
    assert await anext(values) == "second"
    await store.command("SET", "MUF/ONE/KEEP/state", "third")
    assert await anext(values) == "third"
    await values.aclose()


async def test_a_unit_that_lives_says_so(unit: Units, store: Store) -> None:
    await unit("ONE", alive=True)
    await until_set(store, "MUF/ONE/KEEP/alive")
    assert 0 < await store.command("TTL", "MUF/ONE/KEEP/alive") <= 15


@pytest.mark.parametrize("name", ["", "a/b", "a b"])
async def test_bad_names_are_refused(unit: Units, name: str) -> None:
    one = await unit("ONE")
    with pytest.raises(ValueError, match="name"):
        await one.keep(name, b"x")
    with pytest.raises(ValueError, match="ttl"):
        await one.keep("state", b"x", ttl=0)
