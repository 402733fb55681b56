from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.store.servers import StoreServers

from mpreg.apps.muf import Unit

Units = Callable[..., Awaitable[Unit]]


@pytest.fixture
async def unit(store_servers: StoreServers) -> AsyncIterator[Units]:
    """Units on the servers of this test, closed after it: `frontend = await unit("FRONTEND")`."""
    async with AsyncExitStack() as stack:

        async def connect(name: str, **options: Any) -> Unit:
            made = await Unit.connect(name, store_servers.url, **options)
            stack.push_async_callback(made.close, 0.0)
            return made

        yield connect
