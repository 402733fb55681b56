"""`mpreg schema`: documents that programs read. What is in them is tested beside the messages."""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Mpreg


@pytest.mark.parametrize(("args", "key"), [((), "$schema"), (("json",), "$schema"), (("asyncapi",), "asyncapi")])
def test_it_prints_a_document(mpreg: Mpreg, args: tuple[str, ...], key: str) -> None:
    said = mpreg("schema", *args)
    assert (said.code, said.err) == (0, "")
    assert key in json.loads(said.out)


def test_json_is_one_line(mpreg: Mpreg) -> None:
    assert mpreg("schema", "--json").out.count("\n") == 1


def test_an_unknown_kind_is_wrong_usage(mpreg: Mpreg) -> None:
    assert mpreg("schema", "soap").code == 2
