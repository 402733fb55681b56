import asyncio
import subprocess
import sys

import pytest
from tests.apps.muf.conftest import Units
from tests.store.servers import StoreServers

from mpreg.apps.muf.keys import MUF
from mpreg.apps.muf.names import Name, Status
from mpreg.keyspace import Catalog
from mpreg.store import Store


@pytest.mark.parametrize("status", ["REQ", "RES", "ERR", "KEEP"])
def test_every_key_of_the_protocol_is_declared(status: Status) -> None:
    found = MUF.family_of(Name("漢字", status, "a.b-1").key)
    assert found is not None
    assert found.declaration.name == status.lower()
    assert found.values == {"unit": "漢字", "id": "a.b-1"}


@pytest.mark.anyio
async def test_what_units_write_has_nothing_to_complain_about(unit: Units, store: Store) -> None:
    frontend, backend = await unit("FE"), await unit("BE", alive=True)
    backend.on_request(group="G")(lambda request: request.raw)
    await backend.ready()
    await frontend.request(b"x", ttl=100)
    await backend.keep("ever", b"x", ttl=None)
    catalog = Catalog([MUF])
    async for page in store.scan():
        for key in page:
            match = catalog.family_of(key)
            assert match is not None, key
            left_s = await store.command("TTL", key)
            assert left_s > 0 or match.declaration.name == "keep"
            assert match.declaration.ttl is not None
            assert left_s <= match.declaration.ttl.longest_s


@pytest.mark.anyio
async def test_mpreg_keys_knows_them_without_being_told(store: Store, store_servers: StoreServers) -> None:
    await store.command("SET", "MUF/FE/REQ/1", "x", "EX", 10)
    command = [sys.executable, "-m", "mpreg", "keys", "--store", store_servers.url, "ls", "--json"]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "MUF/{unit:word}/REQ/{id:word}" in done.stdout
