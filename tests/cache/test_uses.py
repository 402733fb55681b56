"""Uses are counted where values are served, and told to the store now and then."""

from __future__ import annotations

import pytest

from mpreg.cache import uses as module
from mpreg.cache.uses import Uses


def test_uses_go_on_after_they_were_told() -> None:
    uses = Uses()
    assert uses.used(b"a", 1, 100, known=5) == 6
    assert uses.used(b"a", 1, 200) == 7
    ((key, use),) = uses.take()
    assert (key, use.version, use.new, use.used_ms) == (b"a", 1, 2, 200)
    assert uses.take() == []
    assert uses.used(b"a", 1, 300) == 8
    assert uses.used(b"a", 2, 400) == 1, "another version begins anew"


def test_they_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEYS_MAX", 3)
    uses = Uses()
    for n in range(3):
        uses.used(b"%d" % n, 1, 0)
    assert uses.is_full
    assert len(uses.take()) == 3
    assert not uses.is_full
