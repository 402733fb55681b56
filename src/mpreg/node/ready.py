"""The ready file: says that a node accepts connections, by being there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from mpreg.errors import ConfigError


class ReadyFile:
    """Whole, and only while the node does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.remove()  # of a node that was killed
            tempfile.TemporaryFile(dir=path.parent).close()
        except OSError as problem:
            text = f"The ready file {path} can't be written: {problem.strerror}"
            raise ConfigError("CONFIG_INVALID", text, setting="ready_file") from None

    def write(self, data: bytes) -> None:
        with tempfile.NamedTemporaryFile(dir=self.path.parent, prefix=self.path.name, delete=False) as file:
            file.write(data)
        os.replace(file.name, self.path)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
