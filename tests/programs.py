"""Programs that tests need beside what pip installs: `.ci/run` installs them, elsewhere such tests are skipped."""

from __future__ import annotations

import os
import shutil

import pytest


def program(name: str, how: str, *, required: bool = True) -> str:
    """Its path. Without it the test is skipped with the reason; where the required ones must be there, it fails."""
    found = shutil.which(name)
    if found is None:
        reason = f"{name} is not installed: {how}"
        if required and os.environ.get("MPREG_REQUIRE_PROGRAMS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return found
