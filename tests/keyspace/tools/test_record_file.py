"""A backup that reads to its end is what was written; anything else says which line is wrong."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpreg.errors import KeyspaceError
from mpreg.keyspace.tools.record_file import Entry, Footer, Header, Line, Opener, Sealer, entry, read_lines

HEADER = Header(server="valkey 9.1.2", rdb_version=80, match="poppo:*", started="2026-11-19T06:00:00Z")
PAYLOAD = b"\x00\x01x" + b"\x50\x00" + bytes(8)

entries = st.builds(
    entry,
    st.one_of(st.binary(max_size=40), st.text(max_size=20).map(str.encode)),
    st.sampled_from(["string", "hash", "stream"]),
    st.none() | st.integers(0, 2**53),
    st.binary(max_size=60),
)


def written(records: list[Entry], gone: int = 0) -> list[bytes]:
    sealer = Sealer()
    lines = [sealer.header(HEADER), *(sealer.entry(record) for record in records)]
    return [*lines, sealer.footer(gone, "2026-11-19T06:00:01Z")]


def read(data: bytes) -> list[Line]:
    return list(read_lines(data.splitlines(keepends=True), "b.jsonl"))


def fault(data: bytes) -> KeyspaceError:
    with pytest.raises(KeyspaceError) as caught:
        list(read_lines(_lines(data), "b.jsonl"))
    assert caught.value.code == "KEYSPACE_BACKUP_CORRUPT"
    assert caught.value.details["file"] == "b.jsonl"
    return caught.value


def _lines(data: bytes) -> list[bytes]:
    """As a file reads them: at line feeds alone."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


@given(st.lists(entries, max_size=8), st.integers(0, 5))
def test_what_was_written_is_read_back(records: list[Entry], gone: int) -> None:
    header, *middle, footer = list(read_lines(written(records, gone), "b"))
    assert header == HEADER
    assert middle == records
    assert isinstance(footer, Footer)
    assert (footer.keys, footer.gone) == (len(records), gone)


@given(st.binary(max_size=40))
def test_a_key_of_any_bytes_keeps_its_bytes(key: bytes) -> None:
    assert entry(key, "string", None, PAYLOAD).name == key
    line = json.loads(written([entry(key, "string", None, PAYLOAD)])[1])
    if "key" in line:
        assert line["key"].encode() == key
    else:
        assert base64.b64decode(line["key_b64"]) == key


@settings(max_examples=400)
@given(st.data())
def test_any_change_of_a_byte_is_found_in_its_line(data: st.DataObject) -> None:
    records = data.draw(st.lists(entries, min_size=1, max_size=4))
    whole = b"".join(written(records))
    at = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda value: value != whole[at]))
    changed = whole[:at] + bytes([other]) + whole[at + 1 :]
    # A line feed that is gone joins two lines; the first of them is named.
    assert fault(changed).details["line"] == whole[:at].count(b"\n") + 1


@settings(max_examples=300)
@given(st.data())
def test_a_truncated_backup_is_found_wherever_it_was_cut(data: st.DataObject) -> None:
    whole = b"".join(written(data.draw(st.lists(entries, max_size=4))))
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert fault(cut).details["line"] == cut.count(b"\n") + 1


@settings(max_examples=300)
@given(st.data())
def test_lines_removed_doubled_or_swapped_are_found(data: st.DataObject) -> None:
    lines = written(data.draw(st.lists(entries, min_size=2, max_size=5)))
    first = data.draw(st.integers(0, len(lines) - 2))
    second = data.draw(st.integers(first + 1, len(lines) - 1))
    how = data.draw(st.sampled_from(["remove", "double", "swap", "insert"]))
    edited = list(lines)
    match how:
        case "remove":
            del edited[first]
        case "double":
            edited.insert(second, lines[first])
        case "swap":
            edited[first], edited[second] = edited[second], edited[first]
        case "insert":
            edited.insert(second, data.draw(st.binary(max_size=30)).replace(b"\n", b"") + b"\n")
    fault(b"".join(edited))


@given(st.binary(max_size=200))
def test_what_is_no_backup_is_refused(data: bytes) -> None:
    fault(data)


def test_something_after_the_end_is_refused() -> None:
    whole = b"".join(written([]))
    assert fault(whole + b"\n").details["line"] == 3


def test_a_resealed_line_of_another_backup_does_not_fit() -> None:
    """A whole file with checks of its own is accepted only with a footer that counts its keys."""
    sealer, other = Sealer(), Sealer()
    lines = [sealer.header(HEADER), sealer.entry(entry(b"a", "string", None, PAYLOAD))]
    other.header(HEADER)
    with pytest.raises(KeyspaceError, match="line 3"):
        list(read_lines([*lines, other.footer(0, "now")], "b"))


def test_a_format_of_the_future_is_refused_by_its_number() -> None:
    sealer = Sealer()
    line = sealer.header(Header(format=2, server="x", rdb_version=80, started="now"))
    with pytest.raises(KeyspaceError, match="format 2"):
        Opener("b").feed(line)


def test_a_payload_tells_its_version() -> None:
    assert entry(b"a", "string", None, PAYLOAD).rdb_version == 80
