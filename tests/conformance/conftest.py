from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.certificates import make_certificates
from tests.conformance.raw import ENDPOINTS, Endpoint, Raw
from tests.conformance.served import Served

Dial = Callable[..., Raw]


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A node in a process of its own, with all four listeners. It must end well after everything it went through."""
    with Served(make_certificates(tmp_path_factory.mktemp("certificates"))) as node:
        yield node
        node.stop()
    assert node.returncode == 0
    assert "Traceback" not in node.log, node.log


@pytest.fixture(scope="session")
def bystander(served: Served) -> Iterator[Raw]:
    """A connection that must not notice what others do."""
    with served.dial("ws", "json") as raw:
        yield raw


@pytest.fixture(autouse=True)
def nobody_else_is_disturbed(bystander: Raw) -> Iterator[None]:
    yield
    assert bystander.call("echo", "still here")["r"] == "still here"


@pytest.fixture
def dial(served: Served) -> Iterator[Dial]:
    """More connections to the same node, closed after the test."""
    opened: list[Raw] = []

    def dial(scheme: str = "ws", encoding: str = "json") -> Raw:
        opened.append(served.dial(scheme, encoding))
        return opened[-1]

    yield dial
    for raw in opened:
        raw.close()


@pytest.fixture(params=ENDPOINTS, ids=str)
def raw(request: pytest.FixtureRequest, dial: Dial) -> Raw:
    """A new connection, by every transport and in both encodings."""
    endpoint: Endpoint = request.param
    return dial(endpoint.scheme, endpoint.encoding)


@pytest.fixture(params=["ws", "tcp"])
def plain(request: pytest.FixtureRequest, dial: Dial) -> Raw:
    """For what has nothing to do with TLS or the encoding, or takes long."""
    return dial(request.param, "json" if request.param == "ws" else "msgpack")
