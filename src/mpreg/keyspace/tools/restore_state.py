"""How far a restore has come, in a file beside the backup, so that it can go on where it was killed.

The first line says which restore it is; then `started N` before a batch is sent and `done N` after the store has
answered all of it. Keys between the last `done` and the last `started` may have been written, or not.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO, Self

import msgspec

from mpreg.errors import KeyspaceError

SUFFIX = ".restore-state"


class Identity(msgspec.Struct, frozen=True):
    backup: str
    """The SHA-256 that ends the backup."""
    store: str
    on_existing: str


class Reached(msgspec.Struct, frozen=True):
    done: int = 0
    started: int = 0


class RestoreState:
    """Open from the first write to the end; `finish` removes the file."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path = path
        self._file = file

    @classmethod
    def begin(cls, path: Path, identity: Identity) -> Self | None:
        """None where no file can be written: then an interrupted restore can't be resumed."""
        try:
            file = path.open("wb", buffering=0)
            file.write(msgspec.json.encode(identity) + b"\n")
        except OSError:
            return None
        return cls(path, file)

    @classmethod
    def resume(cls, path: Path, identity: Identity) -> tuple[Self, Reached]:
        try:
            lines = path.read_bytes().split(b"\n")[:-1]  # the last line may be cut off
            file = path.open("ab", buffering=0)
        except FileNotFoundError:
            raise _unresumable(path, "there is no interrupted restore of this backup") from None
        except OSError as error:
            raise _unresumable(path, f"it can't be used: {error.strerror}") from None
        try:
            begun = msgspec.json.decode(lines[0] if lines else b"", type=Identity)
        except msgspec.MsgspecError:
            file.close()
            raise _unresumable(path, "it can't be read") from None
        if begun != identity:
            file.close()
            different = next(
                name for name in Identity.__struct_fields__ if getattr(begun, name) != getattr(identity, name)
            )
            raise _unresumable(path, f"it is of another restore: {different} was {getattr(begun, different)!r}")
        if not path.read_bytes().endswith(b"\n"):
            file.write(b"\n")
        return cls(path, file), _reached(lines[1:])

    def started(self, count: int) -> None:
        self._file.write(b"started %d\n" % count)

    def done(self, count: int) -> None:
        self._file.write(b"done %d\n" % count)

    def close(self) -> None:
        self._file.close()

    def finish(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)


def state_path(backup: str) -> Path:
    """Beside the backup."""
    return Path(backup + SUFFIX)


def _reached(lines: list[bytes]) -> Reached:
    reached = {b"started": 0, b"done": 0}
    for line in lines:
        verb, _, count = line.partition(b" ")
        if verb in reached and count.isdigit():
            reached[verb] = max(reached[verb], int(count))
    return Reached(done=reached[b"done"], started=max(reached.values()))


def _unresumable(path: Path, why: str) -> KeyspaceError:
    return KeyspaceError("KEYSPACE_INVALID_QUERY", f"nothing to resume: {path}: {why}", field="resume", file=str(path))
