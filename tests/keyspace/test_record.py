"""A hash is a struct, and any Redis client can read it."""

from __future__ import annotations

import datetime
import enum
import uuid
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpreg.errors import KeyspaceError
from mpreg.keyspace.record import Record, record_from_schema


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Job(msgspec.Struct, rename="camel", kw_only=True):
    title: str
    tries: int = 0
    share: float = 1.0
    done: bool = False
    kind: Literal["a", "b"] = "a"
    colour: Colour | None = None
    at: datetime.datetime | None = None
    day: datetime.date | None = None
    ident: uuid.UUID | None = None
    tag_list: list[str] | None = None
    extra: dict[str, int] | msgspec.UnsetType = msgspec.UNSET
    payload: bytes | None = None


JOBS = st.builds(
    Job,
    title=st.text(),
    tries=st.integers(-(2**62), 2**62),
    share=st.floats(allow_nan=False, allow_infinity=False),
    done=st.booleans(),
    kind=st.sampled_from(["a", "b"]),
    colour=st.none() | st.sampled_from(Colour),
    at=st.none() | st.datetimes(),
    day=st.none() | st.dates(),
    ident=st.none() | st.uuids(),
    tag_list=st.none() | st.lists(st.text()),
    extra=st.just(msgspec.UNSET) | st.dictionaries(st.text(), st.integers(0, 9)),
)


@given(JOBS)
def test_a_struct_is_read_back_from_its_fields(job: Job) -> None:
    record = Record(Job)
    assert record.decode(record.encode(job)) == job


def test_the_fields_are_what_other_clients_would_write() -> None:
    job = Job(title="t", done=True, day=datetime.date(2025, 6, 19), tag_list=["x"], colour=Colour.RED)
    assert Record(Job).encode(job) == {
        b"title": b"t",
        b"tries": b"0",
        b"share": b"1.0",
        b"done": b"true",
        b"kind": b"a",
        b"colour": b"red",
        b"day": b"2025-06-19",
        b"tagList": b'["x"]',
    }


@given(JOBS)
def test_a_record_that_a_schema_describes_reads_and_writes_the_same_fields(job: Job) -> None:
    loaded = record_from_schema(Record(Job).shape)
    fields = Record(Job).encode(job)
    assert loaded.encode(loaded.decode(fields)) == fields


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "title"),
        ({b"title": b"t", b"tries": b"many"}, "tries"),
        ({b"title": b"\xff"}, "title"),
        ({b"title": b"t", b"kind": b"c"}, "kind"),
        ({b"title": b"t", b"tagList": b"x"}, "tagList"),
    ],
)
def test_fields_that_do_not_fit_are_named(fields: dict[bytes, bytes], field: str) -> None:
    with pytest.raises(KeyspaceError) as caught:
        Record(Job).decode(fields)
    assert (caught.value.code, caught.value.details["field"]) == ("KEYSPACE_UNDECODABLE", field)


def test_fields_of_others_are_ignored_unless_the_struct_forbids_them() -> None:
    class Strict(msgspec.Struct, forbid_unknown_fields=True):
        title: str

    assert Record(Job).decode({b"title": b"t", b"other": b"\xff"}).title == "t"
    with pytest.raises(KeyspaceError, match="other"):
        Record(Strict).decode({b"title": b"t", b"other": b"x"})


@pytest.mark.parametrize(
    "changes", [{"title": None}, {"tries": "no"}, {"nothing": 1}, {"kind": "c"}, {"tag_list": [1, object()]}]
)
def test_a_change_that_could_not_be_read_again_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(KeyspaceError, match="KEYSPACE_UNENCODABLE"):
        Record(Job).encode_some(changes)


def test_none_removes_a_field() -> None:
    assert Record(Job).encode_some({"tries": 2, "at": None}) == ({b"tries": b"2"}, [b"at"])
