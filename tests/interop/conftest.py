from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.certificates import make_certificates
from tests.conformance.served import Served


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A node in a process of its own."""
    with Served(make_certificates(tmp_path_factory.mktemp("certificates"))) as node:
        yield node
        node.stop()
