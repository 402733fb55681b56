"""Restore: the keys of a backup, made again by RESTORE with their absolute expiry.

In this order, and nothing is written before the last of the checks has passed: the whole file is verified; the server
is asked whether it can read such payloads; with `fail`, all keys are looked for. An expired record is skipped.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Literal

import msgspec

from mpreg.errors import KeyspaceError, StoreError
from mpreg.keyspace.tools.backup import Progress
from mpreg.keyspace.tools.backup_file import BackupFile
from mpreg.keyspace.tools.pace import Pace
from mpreg.keyspace.tools.record_file import Entry, Footer, Header
from mpreg.keyspace.tools.record_read import replies
from mpreg.keyspace.tools.restore_state import Identity, Reached, RestoreState, state_path
from mpreg.store import Script, Store, StoreReplyError

RESTORE = Script.load(__package__, "restore.lua")
BATCH_KEYS = 500
BATCH_BYTES = 4 * 1024 * 1024
EXAMPLES = 5
YIELD_LINES = 1_000

OnExisting = Literal["skip", "replace", "fail"]


class Verified(msgspec.Struct, frozen=True):
    """What a whole file says. `samples` has the smallest payload of each type and payload version."""

    header: Header
    footer: Footer
    samples: list[Entry]


class Restored(msgspec.Struct, frozen=True):
    keys: int
    """In the backup."""
    restored: int
    same: int
    """Existed already, with the same value and expiry."""
    existing: int
    """Existed with another value or expiry, and were left alone."""
    expired: int
    resumed_at: int
    """Keys that an earlier, interrupted run had dealt with."""


async def restore(
    store: Store,
    file: BackupFile,
    verified: Verified,
    *,
    on_existing: OnExisting = "fail",
    resume: bool = False,
    state_of: str | None = None,
    keys_per_s: float | None = None,
    progress: Progress = lambda done: None,
) -> Restored:
    """A file that `verify` has read. `state_of`: the name of the backup beside which the state is kept; None keeps
    none."""
    await probe(store, file.name, verified)
    identity = Identity(verified.footer.sha256, str(store.url), on_existing)
    reached, state = Reached(), None
    if resume and state_of is not None:
        state, reached = RestoreState.resume(state_path(state_of), identity)
    try:
        if on_existing == "fail":
            await _refuse_existing(store, file, reached.started)
        if state is None and state_of is not None:
            state = RestoreState.begin(state_path(state_of), identity)
        counted = await _write(store, file, on_existing, reached, state, keys_per_s, progress)
    finally:
        if state is not None:
            state.close()
    if state is not None:
        state.finish()
    return Restored(
        keys=verified.footer.keys,
        restored=counted["restored"],
        same=counted["same"],
        existing=counted["exists"],
        expired=counted["expired"],
        resumed_at=reached.done,
    )


async def verify(file: BackupFile) -> Verified:
    """Reads it all once, or raises KEYSPACE_BACKUP_CORRUPT with the line."""
    header: Header | None = None
    footer: Footer | None = None
    samples: dict[tuple[str, int], Entry] = {}
    for number, line in enumerate(file.lines()):
        if isinstance(line, Entry):
            kind = (line.type, line.rdb_version)
            if kind not in samples or len(line.dump) < len(samples[kind].dump):
                samples[kind] = line
        elif isinstance(line, Header):
            header = line
        else:
            footer = line
        if number % YIELD_LINES == 0:
            await asyncio.sleep(0)
    assert header is not None
    assert footer is not None
    return Verified(header, footer, list(samples.values()))


async def probe(store: Store, name: str, verified: Verified) -> None:
    """Asks the server to restore a sample of each kind as a key that expired in 1970: it reads the payload as it
    would any other, and makes no key of it."""
    for sample in verified.samples:
        key = sample.name + b"~probe~" + os.urandom(8).hex().encode()
        try:
            await store.command(b"RESTORE", key, 1, sample.dump, b"ABSTTL")
        except StoreReplyError as error:
            if error.code != "STORE_REPLY":
                raise
            server = f"{store.server.name} {store.server.version}"
            raise KeyspaceError(
                "KEYSPACE_BACKUP_VERSION",
                f"{server} can't read a {sample.type} of {name}, which was made by {verified.header.server} "
                f"(payload version {sample.rdb_version}): {error.text}. Nothing was written",
                file=name,
                made_by=verified.header.server,
                rdb_version=sample.rdb_version,
                server=server,
            ) from None


async def _refuse_existing(store: Store, file: BackupFile, after: int) -> None:
    existing = 0
    examples: list[str] = []
    async for _, batch in _batches(file, after):
        found = await replies([store.send(b"EXISTS", record.name) for record in batch])
        for record, there in zip(batch, found, strict=True):
            if there:
                existing += 1
                examples += [repr(record.name)[1:]] if len(examples) < EXAMPLES else []
    if existing:
        raise KeyspaceError(
            "KEYSPACE_RESTORE_EXISTS",
            f"{existing} keys of the backup exist, for example {', '.join(examples)}; nothing was written. "
            "`--on-existing skip` leaves them alone, `replace` overwrites them",
            existing=existing,
            examples=examples,
        )


async def _write(
    store: Store,
    file: BackupFile,
    on_existing: OnExisting,
    reached: Reached,
    state: RestoreState | None,
    keys_per_s: float | None,
    progress: Progress,
) -> Counter[str]:
    """With `fail`, a key that appears after the check is left alone and counted, like the keys of a batch that was
    under way when an earlier run was killed."""
    counted: Counter[str] = Counter()
    mode = b"replace" if on_existing == "replace" else b"keep"
    loop = asyncio.get_running_loop()
    pace = Pace(keys_per_s, loop.time())
    done = reached.done
    async for done_after, batch in _batches(file, done):
        if state is not None:
            state.started(done_after)
        try:
            outcomes = await replies(
                [
                    store.send_script(
                        RESTORE,
                        [record.name],
                        [record.expires_at_ms if record.expires_at_ms is not None else -1, mode, record.dump],
                    )
                    for record in batch
                ]
            )
        except StoreError as error:
            raise KeyspaceError(
                "KEYSPACE_RESTORE_FAILED",
                f"after {done} keys: {error.message}" + ("; `--resume` continues there" if state is not None else ""),
                retryable=error.retryable,
                state_changed=True if done else None,
                done=done,
                cause=error.code,
            ) from error
        counted.update(outcome.decode() for outcome in outcomes)
        done = done_after
        if state is not None:
            state.done(done)
        progress(done)
        await asyncio.sleep(pace.after(len(batch), loop.time()))
    return counted


async def _batches(file: BackupFile, after: int) -> AsyncIterator[tuple[int, Sequence[Entry]]]:
    """Bounded batches of the entries behind the first `after` ones, each with the count of entries up to its end."""
    batch: list[Entry] = []
    size = count = 0
    for number, line in enumerate(file.lines()):
        if not isinstance(line, Entry):
            continue
        count += 1
        if count <= after:
            if number % YIELD_LINES == 0:
                await asyncio.sleep(0)
            continue
        batch.append(line)
        size += len(line.dump)
        if len(batch) >= BATCH_KEYS or size >= BATCH_BYTES:
            yield count, batch
            batch, size = [], 0
    if batch:
        yield count, batch
