"""A backup on disk: whole or not there at all, compressed when its name ends in `.gz`."""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

from mpreg.errors import KeyspaceError
from mpreg.keyspace.tools.record_file import LINE_BYTES_MAX, Line, Opener

STDIO = "-"
BUFFER_BYTES = 1024 * 1024
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_LEVEL = 1  # payloads are mostly compressed already; this is for the base64


class Sink(Protocol):
    def write(self, data: bytes, /) -> object: ...


@contextmanager
def written(path: str, *, replace: bool = False) -> Iterator[Sink]:
    """A file to write. It appears under its name, and is on the disk, when the block ends; not if the block raises."""
    if path == STDIO:
        with _stdout() as stdout:
            yield stdout
        return
    target = Path(path)
    if not replace:
        _refuse_existing(target)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        file = open(part, "xb", buffering=BUFFER_BYTES, opener=_private)  # noqa: SIM115  # closed below
    except OSError as error:
        raise _unusable(path, "written", error) from None
    try:
        with file:
            if target.suffix == ".gz":
                with gzip.GzipFile("", "wb", _GZIP_LEVEL, file, mtime=0) as packed:
                    yield packed
            else:
                yield file
            file.flush()
            os.fsync(file.fileno())
        if not replace:
            _refuse_existing(target)  # someone may have been faster
        part.replace(target)
        _sync_directory(target.parent)
    except OSError as error:
        raise _unusable(path, "written", error) from None
    finally:
        part.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    """Values may be secrets: only the owner reads them."""
    return os.open(path, flags, 0o600)


@contextmanager
def _stdout() -> Iterator[Sink]:
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError as error:
        # Whoever read has gone; Python is not to find that out once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise _unusable("stdout", "written", error) from None


def _refuse_existing(target: Path) -> None:
    if target.exists():
        raise KeyspaceError(
            "KEYSPACE_FILE", f"{target} exists already; give another name or --overwrite", file=str(target)
        )


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class BackupFile:
    """A backup to read, as often as wanted; each time every line is verified."""

    def __init__(self, name: str, file: IO[bytes]) -> None:
        self.name = name
        self._file = file
        self._packed = file.read(2) == _GZIP_MAGIC

    def lines(self) -> Iterator[Line]:
        """Each line as it is verified, the footer last. What a caller does with a line before the end is his risk."""
        opener = Opener(self.name)
        for line in self._raw(opener):
            yield opener.feed(line)
        opener.end()

    def _raw(self, opener: Opener) -> Iterator[bytes]:
        self._file.seek(0)
        file: IO[bytes] = gzip.GzipFile(fileobj=self._file, mode="rb") if self._packed else self._file  # type: ignore[assignment]  # as a reader it is one
        try:
            while line := file.readline(LINE_BYTES_MAX):
                yield line
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            opener.line += 1
            raise opener.corrupt(f"the compressed data is damaged: {error}") from None
        except OSError as error:
            raise _unusable(self.name, "read", error) from None


@contextmanager
def opened(path: str) -> Iterator[BackupFile]:
    """The backup of that name. What comes through a pipe is first put into a file, for it is read twice."""
    if path == STDIO:
        with tempfile.TemporaryFile() as spool:
            while data := sys.stdin.buffer.read(BUFFER_BYTES):
                spool.write(data)
            spool.seek(0)
            yield BackupFile("stdin", spool)
        return
    try:
        file = open(path, "rb", buffering=BUFFER_BYTES)  # noqa: SIM115  # closed below; only opening is guarded
    except OSError as error:
        raise _unusable(path, "read", error) from None
    with file:
        yield BackupFile(path, file)


def _unusable(path: str, verb: str, error: OSError) -> KeyspaceError:
    return KeyspaceError("KEYSPACE_FILE", f"{path} can't be {verb}: {error.strerror or error}", file=path)
