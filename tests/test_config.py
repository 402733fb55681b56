"""Settings from a file, the environment and the command line, each checked before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from mpreg.config import load
from mpreg.errors import ConfigError


class Inner(msgspec.Struct, frozen=True, kw_only=True):
    bytes_max: Annotated[int, Meta(ge=1)] = 10
    pause_s: float = 1.0


class Outer(msgspec.Struct, frozen=True, kw_only=True):
    name: str = "none"
    port: Annotated[int, Meta(ge=0, le=65535)] | Literal["off"] = 1
    debug: bool = False
    limits: Inner = Inner()


def file_with(folder: Path, text: str) -> Path:
    file = folder / "node.toml"
    file.write_text(text)
    return file


def test_without_anything_said_it_is_the_defaults() -> None:
    assert load(Outer()) == Outer()
    assert load(Outer(), environment={}, overrides={}) == Outer()


def test_the_later_goes_over_the_earlier(tmp_path: Path) -> None:
    file = file_with(tmp_path, 'name = "file"\nport = 2\n[limits]\nbytes_max = 20\n')
    environment = {"MPREG_NAME": "env", "MPREG_LIMITS_PAUSE_S": "2.5", "OTHER": "x", "MPREG_UNKNOWN": "x"}
    found = load(Outer(), file=file, environment=environment, overrides={"name": "line", "port": None})
    assert found == Outer(name="line", port=2, limits=Inner(bytes_max=20, pause_s=2.5))


def test_the_environment_is_text_for_every_type() -> None:
    environment = {"MPREG_PORT": "7", "MPREG_DEBUG": "true", "MPREG_LIMITS_BYTES_MAX": "3"}
    assert load(Outer(), environment=environment) == Outer(port=7, debug=True, limits=Inner(bytes_max=3))
    assert load(Outer(), environment={"MPREG_PORT": "off"}).port == "off"


@pytest.mark.parametrize(
    ("text", "environment", "overrides", "setting", "source"),
    [
        ("port = 70000", {}, {}, "port", "node.toml"),
        ('port = "7"', {}, {}, "port", "node.toml"),
        ("[limits]\nbytes_max = 0", {}, {}, "limits.bytes_max", "node.toml"),
        ("limits = 5", {}, {}, "limits", "node.toml"),
        ("", {"MPREG_PORT": "x"}, {}, "port", "the environment"),
        ("", {"MPREG_DEBUG": "perhaps"}, {}, "debug", "the environment"),
        ("", {}, {"port": -1}, "port", "the command line"),
        ("nmae = 'x'", {}, {}, "nmae", "node.toml"),
        ("[limits]\nbites_max = 1", {}, {}, "limits.bites_max", "node.toml"),
    ],
)
def test_what_can_not_be_is_named_with_where_it_was_said(
    tmp_path: Path, text: str, environment: dict[str, str], overrides: dict[str, Any], setting: str, source: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(Outer(), file=file_with(tmp_path, text), environment=environment, overrides=overrides)
    error = caught.value
    assert (error.code, error.details["setting"]) == ("CONFIG_INVALID", setting)
    assert error.details["source"].endswith(source)
    assert setting in error.message


@pytest.mark.parametrize("content", [b"name = ", b"\xff", None])
def test_a_file_that_can_not_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "node.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(Outer(), file=file)
    assert (caught.value.code, caught.value.details["file"]) == ("CONFIG_UNREADABLE", str(file))
