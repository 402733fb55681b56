"""The file of L2, an lmdb of two tables: entries by the digest of their key, and the order in which they came.

The oldest goes first, unless it was used since: then it is taken for new. Nothing here waits for the disk to have it:
a process that is killed loses nothing, a machine that crashes may leave anything, so the file of a machine that has
started anew since, and was not closed, is not read. A file that can't be trusted is thrown away whole: it is a cache.

All of it is synchronous and belongs to one thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
from pathlib import Path
from typing import IO, Final

import lmdb

from mpreg.cache.bounds import Bounds
from mpreg.cache.disk_record import decode_record, encode_record
from mpreg.cache.entry import Entry
from mpreg.cache.tier import Evicted
from mpreg.errors import ConfigError

log = logging.getLogger(__name__)

FORMAT: Final = "l2-1"
"""The name of the directory: another format is another name, and starts empty."""
DIGEST_BYTES: Final = 16
PLACE_BYTES: Final = 8
ENTRY_OVERHEAD_BYTES: Final = 1024
"""Of an entry in the file, at most: its key and labels, both tables' pages, what lmdb rounds up."""
SPARE_BYTES: Final = 64 << 20
USED_MAX: Final = 65_536
"""So many are remembered as used since they came; then it begins anew."""
KILLS_MAX: Final = 5
"""After so many processes in a row that did not close the file it is thrown away."""
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

Gone = list[tuple[bytes, Evicted]]


class DiskFile:
    def __init__(self, path: Path, bounds: Bounds) -> None:
        """Raises `CONFIG_INVALID` if another node has the file open, or the directory can't be made."""
        self.gone: Gone = []
        """What was given up unasked, for the owner to take."""
        self.bytes = self._last = 0
        self._bounds = bounds
        self._path = path / FORMAT
        self._used: set[bytes] = set()
        self._lock = _own(path)
        try:
            self._open()
        except BaseException:
            self._lock.close()
            raise

    def get(self, key: bytes, now_ms: int) -> Entry | None:
        digest = _digest(key)
        with self._env.begin(buffers=True) as read:
            found = read.get(digest, db=self._entries)
            record = None if found is None else bytes(found)
        if record is None:
            return None
        try:
            held, entry = decode_record(record[PLACE_BYTES:])
        except ValueError:
            self._drop(digest, key, "corrupt")
            return None
        if held != key:
            return None
        if not entry.is_alive(now_ms):
            self._drop(digest, key, "expired")
            return None
        if len(self._used) >= USED_MAX:
            self._used.clear()
        self._used.add(digest)
        return entry

    def put(self, key: bytes, entry: Entry) -> None:
        digest = _digest(key)
        size = len(entry.value)
        with self._env.begin(write=True) as change:
            self._take(change, digest)
            if size > self._bounds.bytes_max or self._bounds.entries_max < 1:
                self.gone.append((key, "too_large"))
                return
            self._make_room(change, size)
            self._append(change, digest, size, encode_record(key, entry))

    def remove(self, key: bytes) -> bool:
        with self._env.begin(write=True) as change:
            return self._take(change, _digest(key))

    def keys(self) -> list[bytes]:
        found: list[bytes] = []
        with self._env.begin(buffers=True) as read, read.cursor(self._entries) as each:
            for record in each.iternext(keys=False):
                with contextlib.suppress(ValueError):
                    found.append(decode_record(bytes(record)[PLACE_BYTES:])[0])
        return found

    def __len__(self) -> int:
        with self._env.begin() as read:
            return int(read.stat(self._entries)["entries"])

    def clear(self) -> None:
        """By throwing the file away: that needs no room on the disk."""
        self._env.close()
        self._start_anew()

    def close(self) -> None:
        """What was put is on the disk then."""
        with contextlib.suppress(lmdb.Error):
            self._env.sync(True)
            self._marker.unlink(missing_ok=True)
        self._env.close()
        self._lock.close()

    def abandon(self) -> None:
        """Let go of a file that can't be used; the marker stays, so nobody trusts it after the machine has started."""
        self._env.close()
        shutil.rmtree(self._path, ignore_errors=True)
        self._lock.close()

    # Entries.

    def _drop(self, digest: bytes, key: bytes, why: Evicted) -> None:
        with self._env.begin(write=True) as change:
            self._take(change, digest)
        self.gone.append((key, why))

    def _take(self, change: lmdb.Transaction, digest: bytes) -> bool:
        old = change.pop(digest, db=self._entries)
        if old is None:
            return False
        self._forget(change, bytes(old[:PLACE_BYTES]))
        self._used.discard(digest)
        return True

    def _forget(self, change: lmdb.Transaction, place: bytes) -> None:
        held = change.pop(place, db=self._order)
        if held is not None:
            self.bytes -= _size_of(bytes(held))

    def _make_room(self, change: lmdb.Transaction, size: int) -> None:
        entries = change.stat(self._entries)["entries"]
        with change.cursor(self._order) as order:
            while entries >= self._bounds.entries_max or self.bytes + size > self._bounds.bytes_max:
                if not order.first():
                    raise ValueError("what takes room has no place in the order")
                place, held = map(bytes, order.item())
                self._forget(change, place)
                digest = held[:DIGEST_BYTES]
                record = bytes(change.get(digest, db=self._entries, default=b""))
                if record[:PLACE_BYTES] != place:
                    continue
                if digest in self._used:
                    self._used.discard(digest)
                    self._append(change, digest, _size_of(held), record[PLACE_BYTES:])
                    continue
                change.delete(digest, db=self._entries)
                entries -= 1
                with contextlib.suppress(ValueError):
                    self.gone.append((decode_record(record[PLACE_BYTES:])[0], "capacity"))

    def _append(self, change: lmdb.Transaction, digest: bytes, size: int, record: bytes) -> None:
        self._last += 1
        place = self._last.to_bytes(PLACE_BYTES, "big")
        change.put(digest, place + record, db=self._entries)
        change.put(place, digest + size.to_bytes(8, "big"), db=self._order, append=True)
        self.bytes += size

    # The file.

    @property
    def _marker(self) -> Path:
        """There while the file is open: which start of the machine has written to it last."""
        return self._path / "open"

    def _open(self) -> None:
        if not self._is_trusted():
            self._start_anew()
            return
        try:
            self._open_file()
            self._read_order()
        except (lmdb.Error, OSError, ValueError) as problem:
            log.warning("The cache on disk is damaged and begins anew: %s", problem)
            with contextlib.suppress(AttributeError):
                self._env.close()
            self._start_anew()

    def _is_trusted(self) -> bool:
        """Closed in good order, or killed while the machine ran on: but not again and again, for that may be its doing.

        lmdb ends the whole process when it finds some damages.
        """
        self._kills = 0
        if not self._marker.exists():
            return True
        boot_id, _, kills = self._marker.read_text().partition(" ")
        self._kills = int(kills) + 1 if kills.isdecimal() else KILLS_MAX
        if boot_id != _boot_id() or not boot_id:
            log.warning("The cache on disk was not closed before this machine started: it begins anew")
            return False
        if self._kills >= KILLS_MAX:
            log.warning("The cache on disk was not closed %s times in a row: it begins anew", self._kills)
            return False
        return True

    def _start_anew(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)
        self._kills = 0
        self._used.clear()
        self.bytes = self._last = 0
        self._open_file()

    def _open_file(self) -> None:
        bounds = self._bounds
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._marker.write_text(f"{_boot_id()} {self._kills}")
        self._env = lmdb.open(
            str(self._path),
            map_size=2 * bounds.bytes_max + bounds.entries_max * ENTRY_OVERHEAD_BYTES + SPARE_BYTES,
            max_dbs=2,
            mode=0o600,
            sync=False,
            metasync=False,
        )
        info, page = self._env.info(), self._env.stat()["psize"]
        if (self._path / "data.mdb").stat().st_size < (info["last_pgno"] + 1) * page:
            raise ValueError("the file is cut off")
        self._entries = self._env.open_db(b"entries")
        self._order = self._env.open_db(b"order")

    def _read_order(self) -> None:
        with self._env.begin() as read, read.cursor(self._order) as order:
            if read.stat(self._entries)["entries"] != read.stat(self._order)["entries"]:
                raise ValueError("its two tables do not fit")
            self.bytes = sum(_size_of(bytes(held)) for held in order.iternext(keys=False))
            self._last = int.from_bytes(order.key(), "big") if order.last() else 0


def _size_of(held: bytes) -> int:
    """Of the value at a place in the order."""
    return int.from_bytes(held[DIGEST_BYTES:], "big")


def _digest(key: bytes) -> bytes:
    """lmdb's keys are shorter than ours may be."""
    return hashlib.blake2b(key, digest_size=DIGEST_BYTES).digest()


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _own(path: Path) -> IO[str]:
    """The lock of the directory, until it is closed."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (path / "lock").open("w")
    except OSError as problem:
        text = f"The cache can't keep anything in {path}: {problem.strerror}"
        raise ConfigError("CONFIG_INVALID", text, setting="cache.disk") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        text = f"Another node keeps its cache in {path}"
        raise ConfigError("CONFIG_INVALID", text, setting="cache.disk") from None
    os.set_inheritable(lock.fileno(), False)
    return lock
