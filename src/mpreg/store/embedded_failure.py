"""Why a server can't use its data or has ended, as an error that says what to do. Nothing here changes a file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from mpreg.errors import StoreError
from mpreg.store.embedded_binary import Binary
from mpreg.store.embedded_config import Durability
from mpreg.store.embedded_files import Files, disk_full

LOG_LINES_MAX = 15
LOG_TAIL_BYTES = 16_384

APPEND_ONLY = "appendonlydir"
SNAPSHOT = "dump.rdb"

_FULL = re.compile(r"No space left on device|Disk quota exceeded|Short write while writing to the AOF file")
_VERSION = re.compile(r"Can't handle RDB format version|Unknown command '.*' reading the append only file")
_CORRUPT = re.compile(
    r"Bad file format reading the append only file|MANIFEST FILE ERROR|Invalid AOF manifest"
    r"|Unable to obtain the AOF file|Error reading the RDB base file|Internal error in RDB|Unrecoverable error reading"
    r"|Wrong signature trying to load DB|RDB CRC error"
)

# A snapshot begins with its format and who wrote it: VALKEY080 \xfa \x0a valkey-ver \x05 9.1.2
_WRITTEN_BY = re.compile(rb"(?:REDIS|VALKEY)\d+\xfa.(redis|valkey)-ver.(\d+)\.(\d+)\.(\d+)", re.DOTALL)


def check_data(files: Files, durability: Durability) -> None:
    """Refuses data that the server would silently not read, or would start anew over."""
    log_files = sorted((files.data / APPEND_ONLY).glob("*")) if (files.data / APPEND_ONLY).is_dir() else []
    snapshot = files.data / SNAPSHOT
    if durability == "memory":
        if log_files or snapshot.exists():
            raise StoreError(
                "STORE_DATA_DURABILITY",
                f"{files.data} holds data, which durability 'memory' would not read: "
                "start with 'everysec' or 'always', or use another data directory",
                option="durability",
            )
    elif not any(path.name.endswith(".manifest") for path in log_files):
        if log_files and not files.unborn.exists():
            raise StoreError(
                "STORE_DATA_CORRUPT",
                f"the manifest in {files.data / APPEND_ONLY} is missing, and a server would start anew over the other "
                "files: put it back from a copy, or move the directory away to start empty; nothing was deleted",
            )
        if snapshot.exists() and not log_files and not (files.data / "appendonly.aof").exists():
            raise StoreError(
                "STORE_DATA_DURABILITY",
                f"{snapshot} is a snapshot, which durability {durability!r} does not read: restore it into a running "
                "store, or move it away to start empty; nothing was deleted",
                option="durability",
            )


def read_log(log: Path, start: int = 0) -> list[str]:
    """The last lines that were written after the byte `start`."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(0, min(start, end), end - LOG_TAIL_BYTES))
            lines = file.read(LOG_TAIL_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line for line in lines if line.strip()]


def explain(files: Files, binary: Binary, lines: Sequence[str], exit_code: int | None) -> StoreError:
    """The error for a server that ended by itself, from the lines that it logged in this run."""
    text = "\n".join(lines)
    log = list(lines[-LOG_LINES_MAX:])
    if _FULL.search(text):
        return disk_full(files.data_dir, log=log)
    writer = written_by(files)
    foreign = writer is not None and (writer[0] != binary.name or writer[1] > binary.version)
    if _VERSION.search(text) or (foreign and _CORRUPT.search(text)):
        name = f"{writer[0]} {'.'.join(map(str, writer[1]))}" if writer else "a newer server"
        return StoreError(
            "STORE_DATA_VERSION",
            f"the data in {files.data} was written by {name}, and {binary} can't read it: "
            "start with that server or a newer one; nothing was deleted",
            written_by=name,
            server=str(binary),
            log=log,
        )
    if _CORRUPT.search(text):
        return StoreError(
            "STORE_DATA_CORRUPT",
            f"the data in {files.data} is damaged. Copy that directory; put back a good copy, or cut the newest "
            ".incr.aof with valkey-check-aof --fix (docs/store.md), which drops what follows the damage; nothing was "
            "deleted",
            log=log,
        )
    how = f"by signal {-exit_code}" if exit_code is not None and exit_code < 0 else f"with exit code {exit_code}"
    return StoreError(
        "STORE_SERVER_FAILED",
        f"the server ({binary}) ended {how}" + (f": {log[-1]}" if log else f"; {files.log} may say why"),
        exit_code=exit_code,
        log=log,
    )


def written_by(files: Files) -> tuple[str, tuple[int, int, int]] | None:
    """Name and version of the server that wrote the newest snapshot that the append-only file builds on."""
    for path in sorted((files.data / APPEND_ONLY).glob("*.base.rdb"), key=lambda p: p.stat().st_mtime, reverse=True):
        with path.open("rb") as file:
            found = _WRITTEN_BY.match(file.read(64))
        if found:
            return found[1].decode(), (int(found[2]), int(found[3]), int(found[4]))
    return None
