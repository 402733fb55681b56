"""The embedded store: a Valkey server of our own on a data directory, which lives exactly as long as its owner.

    async with Embedded("mpreg-data") as server:
        store = await connect(server.url)

It listens on a unix socket only. One process owns a directory; a server that dies is started again with the data that
it had; when the owner goes, in whatever way, the server goes too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from typing import IO, Self

from mpreg.errors import StoreError
from mpreg.store import embedded_launch
from mpreg.store.embedded_binary import Binary, find_binary
from mpreg.store.embedded_config import check_durability, server_arguments
from mpreg.store.embedded_failure import check_data, explain, read_log
from mpreg.store.embedded_files import Claim, Files, claim, disk_errors, locate

logger = logging.getLogger(__name__)

# From its start until it answers anything; while it says that it loads its data, there is no limit.
ANSWER_S = 10.0
_ANSWER_POLL_S = 0.003
# SIGTERM lets it flush its file; a disk that takes longer than this is not waited for.
STOP_S = 30.0

# A server that dies within QUICK_S died quickly; after so many quick deaths in a row it is left dead.
QUICK_S = 10.0
QUICK_DEATHS_MAX = 5
BACKOFF_FIRST_S = 0.05
BACKOFF_MAX_S = 2.0

# One old log is kept beside the present one, so they take up to twice this. The size is looked at now and then.
LOG_BYTES_MAX = 1 << 20
LOG_CHECK_S = 60.0


class Embedded:
    """One server on one data directory. Start it once; afterwards `stop`, or leave the `async with`."""

    locate = staticmethod(locate)

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        durability: str = "everysec",
        *,
        binary: str | os.PathLike[str] | None = None,
        maxmemory_bytes: int | None = None,
    ) -> None:
        if maxmemory_bytes is not None and maxmemory_bytes <= 0:
            raise StoreError(
                "STORE_INVALID_OPTION",
                f"maxmemory_bytes is {maxmemory_bytes}; it must be over 0, or None for no limit",
                option="maxmemory_bytes",
            )
        self.durability = check_durability(durability)
        self.restarts = 0
        self._files = Files(data_dir)
        self._named_binary = binary
        self._maxmemory_bytes = maxmemory_bytes
        self._binary: Binary | None = None
        self._claim: Claim | None = None
        self._life: tuple[int, int] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._log_start = 0
        self._supervision: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._failure: StoreError | None = None

    @property
    def url(self) -> str:
        """Where clients connect; the same after each restart."""
        return self._files.url

    @property
    def pid(self) -> int | None:
        """Of the server, while it runs."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Returns when the server answers with its data loaded; otherwise nothing runs, and the error says why."""
        assert self._claim is None, "this store has been started already"
        self._binary = await asyncio.to_thread(find_binary, self._named_binary)
        self._files.make()
        self._claim = await claim(self._files)
        try:
            check_data(self._files, self.durability)
            if not any(self._files.data.iterdir()):
                with disk_errors(self._files.data_dir):
                    self._files.unborn.touch()
            self._life = os.pipe()
            self._claim.announce()
            await self._launch()
            self._files.unborn.unlink(missing_ok=True)
        except BaseException:
            await self.stop()
            raise
        self._over.clear()
        self._supervision = asyncio.create_task(self._supervise(), name="embedded store")

    async def stop(self) -> None:
        """Ends the server with everything on disk that its durability keeps. Again, or before a start: does nothing."""
        try:
            if self._supervision is not None:
                self._supervision.cancel()
                await asyncio.wait([self._supervision])
                self._supervision = None
            await self._end()
        finally:
            self._release()
            self._over.set()

    async def wait(self) -> None:
        """Until it is stopped; raises when the server keeps dying and is not started any more."""
        await self._over.wait()
        if self._failure is not None:
            raise self._failure

    async def _launch(self) -> None:
        assert self._binary is not None
        assert self._claim is not None
        assert self._life is not None
        files = self._files
        arguments = server_arguments(
            str(files.data), str(files.socket), str(files.log), self.durability, self._maxmemory_bytes
        )
        mode = "signal" if sys.platform == "linux" else "pipe"
        life = self._life[0]
        with disk_errors(files.data_dir), self._open_log() as log:
            self._log_start = log.seek(0, os.SEEK_END)
            # A socket of a server that was killed would answer nobody, and look as if one were there.
            files.socket.unlink(missing_ok=True)
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", embedded_launch.__file__, mode, str(os.getpid()), str(life)),
                *(self._binary.path, *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=files.data,
                # The lock goes along, so that it is held until the server has really gone.
                pass_fds=(self._claim.server_fd, life),
            )
        try:
            await self._answers(self._process)
        except BaseException:
            await self._end(at_once=True)
            raise

    async def _answers(self, process: asyncio.subprocess.Process) -> None:
        clock = asyncio.get_running_loop().time
        deadline = clock() + ANSWER_S
        while True:
            if process.returncode is not None:
                raise self._explain()
            reply = await _ping(str(self._files.socket))
            if reply == b"+PONG\r\n":
                return
            if reply is not None:
                deadline = clock() + ANSWER_S
            elif clock() > deadline:
                lines = read_log(self._files.log, self._log_start)
                raise StoreError(
                    "STORE_SERVER_FAILED", f"the server does not answer within {ANSWER_S:g} s of its start", log=lines
                )
            await asyncio.sleep(_ANSWER_POLL_S)

    async def _supervise(self) -> None:
        clock = asyncio.get_running_loop().time
        quick_deaths = 0
        while True:
            up_since = clock()
            await self._ended()
            if clock() - up_since > QUICK_S:
                quick_deaths = 0
            error = self._explain()
            while True:
                quick_deaths += 1
                if quick_deaths > QUICK_DEATHS_MAX:
                    logger.error("the store's server has died %d times and stays dead: %s", quick_deaths, error)
                    self._failure = error
                    self._over.set()
                    return
                logger.warning("the store's server has died and is started again: %s", error)
                await asyncio.sleep(min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** (quick_deaths - 1)))
                try:
                    await self._launch()
                except StoreError as again:
                    error = again
                else:
                    self.restarts += 1
                    break

    async def _ended(self) -> None:
        """Until the server has ended. The server opens its log anew for each line, so it may be renamed at any time."""
        assert self._process is not None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOG_CHECK_S):
                    await self._process.wait()
                    return
            with contextlib.suppress(OSError):
                self._rotate_log()

    def _explain(self) -> StoreError:
        assert self._binary is not None
        assert self._process is not None
        lines = read_log(self._files.log, self._log_start)
        return explain(self._files, self._binary, lines, self._process.returncode)

    def _open_log(self) -> IO[bytes]:
        self._rotate_log()
        return self._files.log.open("ab")

    def _rotate_log(self) -> None:
        if self._files.log.exists() and self._files.log.stat().st_size > LOG_BYTES_MAX:
            self._files.log.replace(self._files.old_log)
            self._log_start = 0

    async def _end(self, *, at_once: bool = False) -> None:
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL if at_once else signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            logger.error("the store's server does not end within %g s, and is killed", STOP_S)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        self._process = None

    def _release(self) -> None:
        if self._claim is None:
            return
        if self._process is None:
            self._files.socket.unlink(missing_ok=True)
        self._claim.close()
        self._claim = None
        for descriptor in self._life or ():
            os.close(descriptor)
        self._life = None


async def _ping(path: str) -> bytes | None:
    """What the server says to PING; None while nobody listens."""
    try:
        reader, writer = await asyncio.open_unix_connection(path)
    except OSError:
        return None
    try:
        writer.write(b"*1\r\n$4\r\nPING\r\n")
        async with asyncio.timeout(1.0):
            return await reader.readline() or None
    except (OSError, TimeoutError):
        return None
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
