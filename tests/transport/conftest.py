from typing import Any

import pytest


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Both event loops: a node runs on uvloop, a client on whatever its program has."""
    return "asyncio", {"use_uvloop": request.param == "uvloop"}
