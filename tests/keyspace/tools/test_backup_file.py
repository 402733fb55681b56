"""A backup is under its name when it is whole, and not before."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpreg.errors import KeyspaceError
from mpreg.keyspace.tools.backup_file import opened, written
from mpreg.keyspace.tools.record_file import Entry, Header, Line, Sealer, entry

RECORDS = [entry(b"a\nb", "string", None, bytes(20)), entry(b"\xff", "hash", 12345, bytes(30))]


def backup(path: Path, records: list[Entry], *, replace: bool = False) -> None:
    sealer = Sealer()
    with written(str(path), replace=replace) as sink:
        sink.write(sealer.header(Header(server="valkey 9.1.2", rdb_version=80, started="now")))
        for record in records:
            sink.write(sealer.entry(record))
        sink.write(sealer.footer(0, "then"))


def half_written(path: Path, *, replace: bool = False) -> None:
    with written(str(path), replace=replace) as sink:
        sink.write(b"half")
        raise RuntimeError


def lines(path: Path) -> list[Line]:
    with opened(str(path)) as file:
        once = list(file.lines())
        assert list(file.lines()) == once, "a backup can be read again"
        return once


@pytest.mark.parametrize("name", ["b.jsonl", "b.jsonl.gz"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    backup(tmp_path / name, RECORDS)
    assert lines(tmp_path / name)[1:-1] == RECORDS
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    backup(tmp_path / "b.jsonl", RECORDS)
    assert (tmp_path / "b.jsonl").stat().st_mode & 0o777 == 0o600


def test_the_name_decides_about_compression(tmp_path: Path) -> None:
    backup(tmp_path / "b.gz", RECORDS)
    backup(tmp_path / "b.jsonl", RECORDS)
    assert gzip.decompress((tmp_path / "b.gz").read_bytes()) == (tmp_path / "b.jsonl").read_bytes()
    (tmp_path / "b.gz").rename(tmp_path / "renamed")
    assert lines(tmp_path / "renamed")[1:-1] == RECORDS


def test_a_backup_that_fails_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        half_written(tmp_path / "b.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_kept_unless_told_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    backup(path, RECORDS)
    with pytest.raises(KeyspaceError, match="exists already") as caught:
        backup(path, [])
    assert caught.value.code == "KEYSPACE_FILE"
    assert lines(path)[1:-1] == RECORDS
    backup(path, [], replace=True)
    assert lines(path)[1:-1] == []


def test_a_failed_replacement_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    backup(path, RECORDS)
    with pytest.raises(RuntimeError):
        half_written(path, replace=True)
    assert lines(path)[1:-1] == RECORDS


def test_someone_who_was_faster_keeps_his_file(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    with pytest.raises(KeyspaceError, match="exists already"), written(str(path)):
        path.write_bytes(b"theirs")
    assert path.read_bytes() == b"theirs"


@pytest.mark.parametrize("path", ["/nowhere/at/all.jsonl", "/proc/backup.jsonl"])
def test_a_place_that_cannot_be_written_is_named(path: str) -> None:
    with pytest.raises(KeyspaceError, match=path) as caught, written(path):
        pass
    assert caught.value.code == "KEYSPACE_FILE"


def test_a_file_that_is_missing_is_named() -> None:
    with pytest.raises(KeyspaceError, match="No such file") as caught, opened("/nowhere/b.jsonl"):
        pass
    assert caught.value.code == "KEYSPACE_FILE"


@settings(max_examples=150)
@given(at=st.integers(0, 10_000), bit=st.integers(0, 7), cut=st.booleans())
def test_a_damaged_compressed_backup_never_reads_as_another_one(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int, cut: bool
) -> None:
    path = tmp_path_factory.mktemp("gz") / "b.gz"
    backup(path, RECORDS)
    whole = bytearray(path.read_bytes())
    at %= len(whole)
    if cut:
        del whole[at:]
    else:
        whole[at] ^= 1 << bit
    path.write_bytes(whole)
    read: list[Line] | str
    try:
        read = lines(path)
    except KeyspaceError as error:
        read = error.code
    if read != "KEYSPACE_BACKUP_CORRUPT":
        assert not cut, "what is cut off is missed"
        assert read[1:-1] == RECORDS, "a bit that says nothing of the content, as the date of a gzip header"
