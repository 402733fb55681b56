"""A Lua script that lives in a `.lua` file beside the code that calls it; the server knows it by its SHA."""

from __future__ import annotations

import hashlib
from importlib import resources

import msgspec

from mpreg.errors import StoreError


class Script(msgspec.Struct, frozen=True):
    name: str
    source: bytes
    sha: bytes

    @classmethod
    def of(cls, source: str | bytes, name: str = "script") -> Script:
        data = source.encode() if isinstance(source, str) else source
        # The server names scripts by SHA-1; nothing is signed with it.
        return cls(name, data, hashlib.sha1(data, usedforsecurity=False).hexdigest().encode())

    @classmethod
    def load(cls, package: str, name: str) -> Script:
        """The file `name` of a package: `Script.load(__package__, "take.lua")`."""
        try:
            return cls.of(resources.files(package).joinpath(name).read_bytes(), name)
        except OSError as error:
            raise StoreError("STORE_INVALID_COMMAND", f"the script {name!r} of {package!r} can't be read") from error
