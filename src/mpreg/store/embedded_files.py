"""What an embedded store keeps in its data directory, who owns that, and where a running one is found.

    DATA_DIR/store/owner.lock    locked by the process that supervises; says who that is and the store's URL
    DATA_DIR/store/server.lock   locked by the server itself, which may outlive a killed owner by some milliseconds
    DATA_DIR/store/server.log    what the server says, and server.log.1 before that
    DATA_DIR/store/valkey.sock   mode 0700; elsewhere if this path is too long for a socket
    DATA_DIR/store/data/         the server's own files

The locks are the kernel's (flock): they go with the last process that has them open, however that ends. No two
servers ever run on one `data`, as the second waits for server.lock, or gives up.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import hashlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from mpreg.errors import StoreError

DATA_DIR = "mpreg-data"
"""Where a node keeps its store if nobody says where."""

# sun_path has 108 bytes on Linux, 104 on macOS and the BSDs, one of them for the final NUL.
SOCKET_PATH_BYTES_MAX = 103

# How long a server of an owner that was killed may take to flush its file and go.
SETTLE_S = 10.0
_SETTLE_POLL_S = 0.01

_FULL = (errno.ENOSPC, errno.EDQUOT)


class Owner(msgspec.Struct, frozen=True):
    """What owner.lock says. It is true only while a process holds the lock."""

    pid: int
    host: str
    url: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Files:
    def __init__(self, data_dir: str | os.PathLike[str]) -> None:
        self.data_dir = Path(os.path.abspath(data_dir))
        self.folder = self.data_dir / "store"
        self.owner_lock = self.folder / "owner.lock"
        self.server_lock = self.folder / "server.lock"
        self.log = self.folder / "server.log"
        self.old_log = self.folder / "server.log.1"
        self.data = self.folder / "data"
        # There from before the very first start of a server until it has answered once.
        self.unborn = self.folder / "unborn"
        near = self.folder / "valkey.sock"
        self.socket_is_near = len(os.fsencode(near)) <= SOCKET_PATH_BYTES_MAX
        self.socket = near if self.socket_is_near else _runtime_folder(self.folder) / "valkey.sock"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def make(self) -> None:
        """The directories, for this user alone where they are new."""
        with disk_errors(self.data_dir):
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self.data.mkdir(mode=0o700, exist_ok=True)
        if not self.socket_is_near:
            _make_private(self.socket.parent)

    def read_owner(self) -> Owner | None:
        try:
            return msgspec.json.decode(self.owner_lock.read_bytes(), type=Owner)
        except (OSError, msgspec.DecodeError):
            return None


class Claim:
    """Both locks, held. Closing it gives them up, except that a server that still runs keeps its own."""

    def __init__(self, files: Files, owner: int, server: int) -> None:
        self._files = files
        self._owner = owner
        self.server_fd = server

    def announce(self) -> None:
        """Says in the lock file who this is. Written in place: a new file would be another lock."""
        owner = Owner(os.getpid(), socket.gethostname(), self._files.url)
        with disk_errors(self._files.data_dir):
            os.truncate(self._owner, 0)
            os.pwrite(self._owner, msgspec.json.encode(owner), 0)

    def close(self) -> None:
        for descriptor in (self.server_fd, self._owner):
            os.close(descriptor)


async def claim(files: Files) -> Claim:
    """Becomes the owner, or says who is. Waits only for a server whose owner is gone already."""
    with contextlib.ExitStack() as undo:
        with disk_errors(files.data_dir):
            owner = _open(files.owner_lock)
            undo.callback(os.close, owner)
            if not _lock(owner):
                holder = files.read_owner()
                raise StoreError(
                    "STORE_DATA_DIR_IN_USE",
                    f"{holder or 'another process'} runs the store of {files.data_dir}: "
                    "connect to that one, stop it, or use another data directory",
                    holder=str(holder or "unknown"),
                    url=holder.url if holder else None,
                )
            server = _open(files.server_lock)
            undo.callback(os.close, server)
            waited_s = 0.0
            while not _lock(server):
                if waited_s >= SETTLE_S:
                    raise StoreError(
                        "STORE_DATA_DIR_IN_USE",
                        f"the server of {files.data_dir} still runs {SETTLE_S:g} s after its owner has gone: "
                        f"end the process that has {files.server_lock} open",
                        holder="a server without owner",
                    )
                await asyncio.sleep(_SETTLE_POLL_S)
                waited_s += _SETTLE_POLL_S
        undo.pop_all()
        return Claim(files, owner, server)


def locate(data_dir: str | os.PathLike[str]) -> str | None:
    """The URL of the store that runs on this directory now, whoever owns it; None if none does."""
    owner = Files(data_dir).read_owner()
    if owner is None:
        return None
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(owner.url.removeprefix("unix://"))
        except OSError:
            return None
    return owner.url


@contextlib.contextmanager
def disk_errors(data_dir: Path) -> Iterator[None]:
    """An OSError of the data directory, as the StoreError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise disk_full(data_dir) from error
        raise StoreError(
            "STORE_DATA_DIR",
            f"{error.filename or data_dir} can't be used: {os.strerror(error.errno or 0)}; "
            "the data directory must be a directory that this user may write to",
        ) from error


def disk_full(data_dir: Path, **details: Any) -> StoreError:
    return StoreError(
        "STORE_DISK_FULL",
        f"no space is left on the disk of {data_dir}: free some and start again; what was acknowledged is kept",
        **details,
    )


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _runtime_folder(folder: Path) -> Path:
    """A short directory that belongs to `folder` alone, the same each time, so that crashes don't leave a trail."""
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    for base in (os.environ.get("XDG_RUNTIME_DIR"), "/tmp"):  # noqa: S108 - made private, or refused
        path = Path(base or "", f"mpreg-{os.geteuid()}-{name}")
        if base and os.path.isdir(base) and len(os.fsencode(path / "valkey.sock")) <= SOCKET_PATH_BYTES_MAX:
            return path
    raise StoreError("STORE_DATA_DIR", f"the path of {folder} is too long for a socket, and there is no short one")


def _make_private(folder: Path) -> None:
    with disk_errors(folder):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise StoreError("STORE_DATA_DIR", f"{folder} must be a directory of this user alone (mode 0700)")
