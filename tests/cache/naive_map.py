"""Maps within maps as plain dicts: what a map of the cache has to do."""

from __future__ import annotations

import copy
from typing import Any


class WrongType(Exception):
    """The path goes through something that is no map, or it leads to something that is no number."""


class NaiveMap:
    def __init__(self, whole: dict[str, Any]) -> None:
        self.whole: dict[str, Any] = copy.deepcopy(whole)

    def _within(self, path: str, *, make: bool) -> tuple[dict[str, Any] | None, str]:
        *above, last = path.split(".")
        at = self.whole
        for name in above:
            if name not in at:
                if not make:
                    return None, last
                at[name] = {}
            if not isinstance(at[name], dict):
                if make:
                    raise WrongType
                return None, last
            at = at[name]
        return at, last

    def set(self, path: str, value: Any) -> bool:
        """Whether the field is new."""
        at, last = self._within(path, make=True)
        assert at is not None
        is_new = last not in at
        at[last] = copy.deepcopy(value)
        return is_new

    def has(self, path: str) -> bool:
        at, last = self._within(path, make=False)
        return at is not None and last in at

    def get(self, path: str) -> Any:
        at, last = self._within(path, make=False)
        assert at is not None
        return at[last]

    def remove(self, path: str) -> bool:
        at, last = self._within(path, make=False)
        if at is None or last not in at:
            return False
        del at[last]
        return True

    def increment(self, path: str, by: float) -> Any:
        at, last = self._within(path, make=True)
        assert at is not None
        old = at.get(last, 0)
        if isinstance(old, bool) or not isinstance(old, int | float):
            raise WrongType
        at[last] = old + by
        return at[last]
