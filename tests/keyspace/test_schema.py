"""A schema file says all that the Python declarations say."""

from __future__ import annotations

import json as plain_json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from examples.poppo_keys import ISSUE_STATUS, IssueStatus, poppo
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.keyspace.values import pattern_texts, patterns, values_of

from mpreg.errors import KeyspaceError
from mpreg.keyspace import Keyspace, Ttl, custom, decimal, integer, json, msgpack, raw, relation, text
from mpreg.keyspace.loading import load, load_one
from mpreg.keyspace.pattern import Pattern
from mpreg.keyspace.schema import dump, load_schema, portable_regex


class Entry(msgspec.Struct):
    name: str
    count: int = 0


CODECS = st.sampled_from([raw, text, integer, decimal, json(Entry), msgpack(list[int]), json(dict[str, Any])])
TTLS = st.sampled_from(
    [
        None,
        5,
        0.25,
        Ttl(seconds=1, max_seconds=9, renew="create"),
        Ttl(until="midnight", zone="Asia/Tokyo", required=False),
    ]
)


@st.composite
def keyspaces(draw: st.DrawFn) -> Keyspace:
    space = Keyspace(
        draw(st.sampled_from(["demo", "デモ", "a b"])),
        prefix=draw(st.sampled_from(["", "demo:", "d/"])),
        about=draw(st.text(max_size=20)),
    )
    for number in range(draw(st.integers(0, 4))):
        pattern = f"{number}:" + draw(pattern_texts())
        name = f"f{number}"
        about, protection = draw(st.text(max_size=9)), draw(st.sampled_from(["none", "state"]))
        common: dict[str, Any] = {"name": name, "about": about, "protection": protection, "ttl": draw(TTLS)}
        try:
            match draw(st.integers(0, 7)):
                case 0:
                    space.string(pattern, draw(CODECS), **common)
                case 1:
                    space.hash(pattern, Entry, **common)
                case 2:
                    space.free_hash(pattern, draw(CODECS), **common)
                case 3:
                    space.stream(pattern, Entry, entries_max=draw(st.sampled_from([None, 10])), **common)
                case 4:
                    space.counter(pattern, **common)
                case 5:
                    space.set(pattern, draw(CODECS), relations=[relation(name)] if "{" not in pattern else (), **common)
                case 6:
                    space.channel(pattern, draw(CODECS), name=name)
                case _:
                    space.lock(pattern, name=name, about=about)
        except KeyspaceError as error:
            if error.code != "KEYSPACE_INVALID_PATTERN":
                raise
    return space


@settings(deadline=None)
@given(keyspaces())
def test_a_schema_file_that_was_written_is_read_back_to_the_same_declarations(space: Keyspace) -> None:
    (loaded,) = load_schema(dump((space,)))
    assert dump((loaded,)) == dump((space,))
    assert (loaded.name, loaded.prefix, loaded.separator, loaded.about) == (
        *(space.name, space.prefix, space.separator, space.about),
    )
    for name, declared in space.declarations.items():
        again = loaded.declarations[name]
        assert (again.pattern, again.type, again.ttl) == (declared.pattern, declared.type, declared.ttl)
        assert (again.protection, again.relations, again.counter) == (
            *(declared.protection, declared.relations, declared.counter),
        )


@given(st.data())
def test_the_regex_for_other_languages_reads_the_same_values(data: st.DataObject) -> None:
    pattern: Pattern = data.draw(patterns)
    key = pattern.build(data.draw(values_of(pattern)))
    try:
        spelled = key.decode()
    except UnicodeDecodeError:
        return  # other languages read text
    found = re.fullmatch(portable_regex(pattern), spelled)
    assert found is not None
    parsed = pattern.parse(key)
    assert parsed is not None
    again = dict(zip([one.name for one in pattern.placeholders], found.groups(), strict=True))
    assert {name: value.encode() if isinstance(parsed[name], bytes) else value for name, value in again.items()} == {
        name: value if isinstance(value, bytes) else str(value) for name, value in parsed.items()
    }


def test_the_parts_of_a_key_build_it_without_a_parser() -> None:
    schema = plain_json.loads(dump((poppo,)))
    family = next(one for one in schema["keyspaces"][0]["families"] if one["name"] == "issue:status")
    built = "".join(part if isinstance(part, str) else {"issue": "123"}[part["name"]] for part in family["key"])
    assert built.encode() == ISSUE_STATUS.key(issue=123)


def test_without_python_a_hash_is_read_by_its_schema() -> None:
    (loaded,) = load_schema(dump((poppo,)))
    fields = loaded.declarations["issue:status"].fields
    own = ISSUE_STATUS.declaration.fields
    assert fields is not None
    assert own is not None
    stored = own.encode(IssueStatus(status="processing", process_id="p1"))
    assert fields.decode(stored).status == "processing"
    with pytest.raises(KeyspaceError, match="KEYSPACE_UNDECODABLE"):
        fields.decode({b"status": b"asleep"})


def test_a_custom_codec_is_bytes_for_who_has_no_python() -> None:
    space = Keyspace("demo")
    space.string("a", custom("hex", lambda value: value.hex().encode(), lambda data: bytes.fromhex(data.decode())))
    (loaded,) = load_schema(dump((space,)))
    codec = loaded.declarations["a"].codec
    assert codec is not None
    assert (codec.name, codec.decode(b"00ff")) == ("hex", b"00ff")


def broken(**changes: Any) -> bytes:
    family = {"name": "a", "pattern": "a:{x}", "type": "string", "codec": {"name": "text"}} | changes
    return plain_json.dumps({"mpreg_schema": 1, "keyspaces": [{"name": "demo", "families": [family]}]}).encode()


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b"", ""),
        (b"[]", ""),
        (b'{"mpreg_schema": 2, "keyspaces": []}', "mpreg_schema"),
        (broken(type="tuple"), "keyspaces[0].families[0].type"),
        (broken(pattern="a:{x"), "keyspaces[0].families[0]"),
        (broken(codec=None), "keyspaces[0].families[0]"),
        (broken(ttl={"seconds": -1}), "keyspaces[0].families[0]"),
        (broken(relations=[{"target": "b", "sources": {"x": "key.x"}}]), "keyspaces[0]"),
        (broken(relations=[{"target": "a", "sources": {"x": "mood"}}]), "keyspaces[0].families[0]"),
        (broken(fields={"type": "object", "properties": {}}, codec=None), "keyspaces[0].families[0]"),
        (broken(name=7), "keyspaces[0].families[0].name"),
    ],
)
def test_a_schema_that_can_t_be_read_says_where(data: bytes, path: str) -> None:
    with pytest.raises(KeyspaceError) as caught:
        load_schema(data)
    assert caught.value.code == "KEYSPACE_INVALID_SCHEMA"
    assert str(caught.value.details["path"]).startswith(path)


# --- where they come from ---------------------------------------------------------------------------------------------


def test_a_file_a_program_and_a_module_give_the_same_declarations(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(dump((poppo,)))
    from_program = load_one("examples/poppo_keys.py")
    assert dump(from_program) == dump(load_one(str(file))) == dump(load_one("examples.poppo_keys:poppo"))
    assert [one.name for one in load(["examples.poppo_keys", "examples.poppo_keys:poppo"]).keyspaces] == ["poppo"]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("nothing.json", "KEYSPACE_SCHEMA_NOT_FOUND"),
        ("nothing.py", "KEYSPACE_SCHEMA_NOT_FOUND"),
        ("no_such_module", "KEYSPACE_SCHEMA_NOT_FOUND"),
        ("mpreg.nothing.here", "KEYSPACE_SCHEMA_NOT_FOUND"),
        ("mpreg.errors", "KEYSPACE_SCHEMA_NOT_FOUND"),
        ("examples.poppo_keys:LOCK", "KEYSPACE_SCHEMA_NOT_FOUND"),
        ("/", "KEYSPACE_SCHEMA_NOT_FOUND"),
    ],
)
def test_a_schema_that_is_not_there_is_said_so(name: str, code: str) -> None:
    with pytest.raises(KeyspaceError) as caught:
        load_one(name)
    assert caught.value.code == code


def test_a_program_that_fails_says_what_failed(tmp_path: Path) -> None:
    file = tmp_path / "broken_keys.py"
    file.write_text("1 / 0\n")
    with pytest.raises(KeyspaceError, match="ZeroDivisionError: division by zero"):
        load_one(str(file))
