"""The file of a backup: JSON Lines, one header, one line a key, one line that ends it. No I/O here.

The invariant: a file that reads to its end without an error is, byte for byte, a file that was written to its end.
Each line ends in `"check"`: the first 16 hex digits of the SHA-256 over the check of the line before and this line up
to its own check. So a line that was changed, removed, doubled or moved is found where it happened, and the last line
repeats the number of keys and the SHA-256 of all that stands before it.

    {"kind":"header","format":1,"server":"valkey 9.1.2","rdb_version":80,"db":0,"match":"poppo:*",…,"check":"…"}
    {"kind":"key","key":"poppo:flags:maintenance","type":"string","expires_at_ms":null,"dump":"AAFv…","check":"…"}
    {"kind":"key","key_b64":"/wA=","type":"hash","expires_at_ms":1790000000000,"dump":"EB4A…","check":"…"}
    {"kind":"end","keys":2,"gone":0,"finished":"2026-11-19T06:00:01Z","sha256":"…","check":"…"}

`key` is text where the key is UTF-8, else `key_b64`; `dump` is what the command DUMP said; times are Unix time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from mpreg.errors import KeyspaceError

FORMAT = 1
LINE_BYTES_MAX = 768 * 1024 * 1024  # a value has at most 512 MB, which base64 makes a third longer
CHECK_HEX = 16
_CHECK = b',"check":"'
_TAIL = len(_CHECK) + CHECK_HEX + len(b'"}\n')


class Header(msgspec.Struct, frozen=True, tag="header", tag_field="kind", kw_only=True):
    format: int = FORMAT
    server: str
    rdb_version: int
    """The version of the payloads; 0 in an empty backup."""
    db: int = 0
    match: str = "*"
    families: list[str] = []
    started: str


class Entry(msgspec.Struct, frozen=True, tag="key", tag_field="kind", kw_only=True):
    """One key as it was: what RESTORE needs to make it again."""

    key: str | msgspec.UnsetType = msgspec.UNSET
    key_b64: bytes | msgspec.UnsetType = msgspec.UNSET
    type: str
    expires_at_ms: int | None = None
    dump: bytes

    @property
    def name(self) -> bytes:
        if self.key is not msgspec.UNSET:
            return self.key.encode()
        return self.key_b64 if self.key_b64 is not msgspec.UNSET else b""

    @property
    def rdb_version(self) -> int:
        """A payload ends in the version of its format, two bytes, and a CRC, eight bytes."""
        return int.from_bytes(self.dump[-10:-8], "little")


class Footer(msgspec.Struct, frozen=True, tag="end", tag_field="kind", kw_only=True):
    keys: int
    gone: int = 0
    """Keys that vanished between being listed and being read."""
    finished: str
    sha256: str


Line = Header | Entry | Footer
_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Line)
_ENCODER = msgspec.json.Encoder()


def entry(key: bytes, type: str, expires_at_ms: int | None, dump: bytes) -> Entry:
    try:
        return Entry(key=key.decode(), type=type, expires_at_ms=expires_at_ms, dump=dump)
    except UnicodeDecodeError:
        return Entry(key_b64=key, type=type, expires_at_ms=expires_at_ms, dump=dump)


class Sealer:
    """Makes the lines of one file, in order: `header`, any number of `entry`, `footer`."""

    def __init__(self) -> None:
        self._whole = hashlib.sha256()
        self._check = b""
        self.keys = 0

    def header(self, header: Header) -> bytes:
        return self._line(header)

    def entry(self, entry: Entry) -> bytes:
        self.keys += 1
        return self._line(entry)

    def footer(self, gone: int, finished: str) -> bytes:
        return self._line(Footer(keys=self.keys, gone=gone, finished=finished, sha256=self._whole.hexdigest()))

    def _line(self, line: Line) -> bytes:
        body = _ENCODER.encode(line)[:-1]
        self._check = _check(self._check, body)
        data = b"".join((body, _CHECK, self._check, b'"}\n'))
        self._whole.update(data)
        return data


class Opener:
    """Reads the lines of one file back; whatever is wrong is KEYSPACE_BACKUP_CORRUPT with the line's number."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._whole = hashlib.sha256()
        self._check = b""
        self._footer: Footer | None = None
        self.line = 0
        self.keys = 0

    def feed(self, line: bytes) -> Line:
        """One line with its line feed."""
        self.line += 1
        if self._footer is not None:
            raise self.corrupt("something follows the line that ends the backup")
        if not line.endswith(b"\n"):
            raise self.corrupt("the file stops in the middle of this line")
        body, tail = line[:-_TAIL], line[-_TAIL:]
        if not (tail.startswith(_CHECK) and tail.endswith(b'"}\n')):
            raise self.corrupt("this is no line of a backup")
        check = _check(self._check, body)
        if tail[len(_CHECK) : -len(b'"}\n')] != check:
            raise self.corrupt("its checksum does not fit: it was changed, or a line before it is missing")
        self._check = check
        read = self._decoded(line)
        self._place(read)
        self._whole.update(line)
        return read

    def end(self) -> Footer:
        """After the last line: the footer, or what is missing."""
        if self._footer is None:
            self.line += 1
            raise self.corrupt("the file ends here, without the line that ends a backup: it is truncated")
        return self._footer

    def _decoded(self, line: bytes) -> Line:
        try:
            read: Line = _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self.corrupt(f"it can't be read: {error}") from None
        if isinstance(read, Entry) and (read.key is msgspec.UNSET) == (read.key_b64 is msgspec.UNSET):
            raise self.corrupt("a key has either `key` or `key_b64`")
        return read

    def _place(self, read: Line) -> None:
        if isinstance(read, Header) != (self.line == 1):
            raise self.corrupt("a backup begins with its header, and has only one")
        if isinstance(read, Header) and read.format != FORMAT:
            raise self.corrupt(f"format {read.format} of backups is not known here; this is format {FORMAT}")
        if isinstance(read, Entry):
            self.keys += 1
        if isinstance(read, Footer):
            if read.keys != self.keys or read.sha256 != self._whole.hexdigest():
                raise self.corrupt(f"it ends a backup of {read.keys} keys, and {self.keys} stand before it")
            self._footer = read

    def corrupt(self, why: str) -> KeyspaceError:
        return KeyspaceError(
            "KEYSPACE_BACKUP_CORRUPT", f"{self._name}, line {self.line}: {why}", file=self._name, line=self.line
        )


def read_lines(lines: Iterable[bytes], name: str) -> Iterator[Line]:
    """All lines of a backup, each verified before it is handed out; the last one is the footer."""
    opener = Opener(name)
    for line in lines:
        yield opener.feed(line)
    opener.end()


def _check(before: bytes, body: bytes) -> bytes:
    return hashlib.sha256(before + body).hexdigest()[:CHECK_HEX].encode()
