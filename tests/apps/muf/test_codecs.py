"""Values at the edge: what can't be stored is refused before any command."""

import pytest

from mpreg.apps.muf import Codec, codecs
from mpreg.apps.muf.codecs import BYTES, JSON, STR, codec_of, encoded


@pytest.mark.parametrize(
    ("name", "value", "raw"), [("bytes", b"\x00", b"\x00"), ("str", "値", "値".encode()), ("json", [1], b"[1]")]
)
def test_codecs_by_name(name: codecs.CodecLike, value: object, raw: bytes) -> None:
    codec = codec_of(name)
    assert encoded(codec, value) == raw
    assert codec.decode(raw) == value


@pytest.mark.parametrize("like", ["yaml", "", None, 7, (bytes,), (bytes, 7), [bytes, bytes]])
def test_what_is_no_codec_is_refused(like: object) -> None:
    with pytest.raises(ValueError, match="codec"):
        codec_of(like)  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", [BYTES, STR, JSON])
@pytest.mark.parametrize("value", [object(), "\ud800", {1, object()}])
def test_a_value_that_has_no_bytes_is_refused(codec: Codec, value: object) -> None:
    with pytest.raises(ValueError):
        encoded(codec, value)


def test_a_codec_that_makes_no_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="codec: it made a int"):
        encoded(Codec(lambda value: value, lambda raw: raw), 7)


def test_a_value_that_no_server_takes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "VALUE_BYTES_MAX", 8)
    assert encoded(BYTES, b"12345678") == b"12345678"
    with pytest.raises(ValueError, match="at most 8"):
        encoded(BYTES, b"123456789")


@pytest.mark.parametrize(("codec", "raw"), [(STR, b"\xff"), (JSON, b"{"), (JSON, b"\xff"), (JSON, b"[" * 100_000)])
def test_a_value_that_does_not_decode_is_a_value_error(codec: Codec, raw: bytes) -> None:
    with pytest.raises(ValueError):
        codec.decode(raw)
