"""Declare the keys of one system, once, as typed Python:

    poppo = Keyspace("poppo", prefix="poppo:")
    STATUS = poppo.hash("issue:status:{issue:int}", IssueStatus, relations=[relation("process:info", ...)])
    HEARTBEAT = poppo.string("process:heartbeat:{process}", text, ttl=1800)

    await HEARTBEAT.at(process="p1").set(store, "alive")

A pattern that shares a key with an earlier one is refused when it is declared, so every key has one meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from mpreg.errors import KeyspaceError
from mpreg.keyspace.channel import Channel
from mpreg.keyspace.codec import Codec, integer, text
from mpreg.keyspace.declaration import (
    Declaration,
    Match,
    Protection,
    RedisType,
    check,
    check_relations,
    family_name,
    invalid,
)
from mpreg.keyspace.family import Family
from mpreg.keyspace.hash_key import FreeHashKey, HashKey
from mpreg.keyspace.list_key import ListKey
from mpreg.keyspace.lock_beside import declared_beside
from mpreg.keyspace.lookup import Lookup
from mpreg.keyspace.overlap import shared_key
from mpreg.keyspace.pattern import Pattern, parse_pattern
from mpreg.keyspace.record import Record
from mpreg.keyspace.relation import Relation
from mpreg.keyspace.set_key import SetKey
from mpreg.keyspace.stream_key import StreamKey
from mpreg.keyspace.string_key import CounterKey, StringKey
from mpreg.keyspace.ttl import Ttl, ttl_of
from mpreg.keyspace.zset_key import ZsetKey

T = TypeVar("T")
FAMILIES_MAX = 1_000
LOCK_TTL_S = 30.0


class Keyspace:
    """`prefix` stands before every key and channel; `separator` is what untyped placeholders can't hold."""

    def __init__(self, name: str, *, prefix: str = "", separator: str = ":", about: str = "") -> None:
        if not name or not name.isprintable() or "/" in name or len(name) > 100:
            raise invalid("name", f"a keyspace has a printable name without '/', not {name!r:.100}")
        parse_pattern("x", separator=separator, prefix=prefix)
        self.name, self.prefix, self.separator, self.about = name, prefix, separator, about
        self.declarations: dict[str, Declaration] = {}
        self.channels: dict[str, Channel[Any]] = {}
        self._lookup = Lookup()

    def __repr__(self) -> str:
        return f"Keyspace({self.name!r}, {len(self.declarations)} families)"

    # --- one method a type of value -------------------------------------------------------------------------------

    def string(
        self,
        pattern: str,
        codec: Codec[T],
        *,
        ttl: float | Ttl | None = None,
        name: str | None = None,
        about: str = "",
        protection: Protection = "none",
        relations: Iterable[Relation] = (),
        alias_of: str | None = None,
        also: Iterable[RedisType] = (),
    ) -> Family[StringKey[T]]:
        return self._family(
            "string", pattern, name, StringKey, codec=codec, ttl=ttl, about=about, protection=protection,
            relations=relations, alias_of=alias_of, also=tuple(also),
        )  # fmt: skip

    def counter(
        self,
        pattern: str,
        *,
        ttl: float | Ttl | None = None,
        name: str | None = None,
        about: str = "",
        protection: Protection = "none",
    ) -> Family[CounterKey]:
        """A string that holds a whole number, changed by INCRBY."""
        return self._family(
            "string", pattern, name, CounterKey, codec=integer, counter=True, ttl=ttl, about=about,
            protection=protection,
        )  # fmt: skip

    def lock(
        self,
        pattern: str,
        codec: Codec[T] = text,  # type: ignore[assignment]  # T is str when it is left out
        *,
        ttl: float | Ttl = LOCK_TTL_S,
        name: str | None = None,
        about: str = "",
        relations: Iterable[Relation] = (),
        fenced: bool = False,
    ) -> Family[StringKey[T]]:
        """A string that holds who has the lock, or a fixed word. It always has a TTL. `fenced` declares the keys that
        `mpreg.store.lock` keeps beside it, too."""
        made = self._family(
            "string",
            pattern,
            name,
            StringKey,
            codec=codec,
            ttl=ttl,
            about=about,
            protection="lock",
            relations=relations,
        )
        for beside in declared_beside(made.declaration) if fenced else ():
            self.add(beside)
        return made

    def hash(
        self,
        pattern: str,
        fields: type[T],
        *,
        ttl: float | Ttl | None = None,
        name: str | None = None,
        about: str = "",
        protection: Protection = "none",
        relations: Iterable[Relation] = (),
        alias_of: str | None = None,
    ) -> Family[HashKey[T]]:
        """A hash whose fields are those of a struct."""
        return self._family(
            "hash", pattern, name, HashKey, fields=Record(fields), ttl=ttl, about=about, protection=protection,
            relations=relations, alias_of=alias_of,
        )  # fmt: skip

    def free_hash(
        self,
        pattern: str,
        codec: Codec[T],
        *,
        ttl: float | Ttl | None = None,
        name: str | None = None,
        about: str = "",
        protection: Protection = "none",
        relations: Iterable[Relation] = (),
    ) -> Family[FreeHashKey[T]]:
        """A hash whose field names are data; every value by one codec."""
        return self._family(
            "hash", pattern, name, FreeHashKey, codec=codec, ttl=ttl, about=about, protection=protection,
            relations=relations,
        )  # fmt: skip

    def set(
        self,
        pattern: str,
        member: Codec[T],
        *,
        ttl: float | Ttl | None = None,
        name: str | None = None,
        about: str = "",
        protection: Protection = "none",
        relations: Iterable[Relation] = (),
        alias_of: str | None = None,
    ) -> Family[SetKey[T]]:
        return self._family(
            "set", pattern, name, SetKey, codec=member, ttl=ttl, about=about, protection=protection,
            relations=relations, alias_of=alias_of,
        )  # fmt: skip

    def list(
        self,
        pattern: str,
        element: Codec[T],
        *,
        ttl: float | Ttl | None = None,
        name: str | None = None,
        about: str = "",
        protection: Protection = "none",
        relations: Iterable[Relation] = (),
    ) -> Family[ListKey[T]]:
        return self._family(
            "list", pattern, name, ListKey, codec=element, ttl=ttl, about=about, protection=protection,
            relations=relations,
        )  # fmt: skip

    def zset(
        self,
        pattern: str,
        member: Codec[T],
        *,
        ttl: float | Ttl | None = None,
        name: str | None = None,
        about: str = "",
        protection: Protection = "none",
        relations: Iterable[Relation] = (),
    ) -> Family[ZsetKey[T]]:
        return self._family(
            "zset", pattern, name, ZsetKey, codec=member, ttl=ttl, about=about, protection=protection,
            relations=relations,
        )  # fmt: skip

    def stream(
        self,
        pattern: str,
        fields: type[T],
        *,
        entries_max: int | None = None,
        ttl: float | Ttl | None = None,
        name: str | None = None,
        about: str = "",
        protection: Protection = "none",
        relations: Iterable[Relation] = (),
    ) -> Family[StreamKey[T]]:
        """A stream of structs, cut to about `entries_max` entries by every append."""
        return self._family(
            "stream", pattern, name, StreamKey, fields=Record(fields), entries_max=entries_max, ttl=ttl, about=about,
            protection=protection, relations=relations,
        )  # fmt: skip

    def channel(self, pattern: str, message: Codec[T], *, name: str | None = None, about: str = "") -> Channel[T]:
        """A pub/sub channel. Channels and keys have separate names, so they may be spelled alike."""
        read = self._pattern(pattern)
        made = Channel(name=family_name(read, name), keyspace=self.name, pattern=read, codec=message, about=about)
        self.add_channel(made)
        return made

    # --- what follows from the declarations -----------------------------------------------------------------------

    def family_of(self, key: bytes) -> Match | None:
        """What a key is: its declaration and the values of its placeholders; None when it is not declared here."""
        return self._lookup.find(key)

    def check(self) -> None:
        """Raise for a relation or an alias that names no family. Tools and tests call it when all is declared."""
        check_relations(self.declarations)

    def add(self, declaration: Declaration) -> None:
        """Declare what a schema file describes."""
        check(declaration)
        if declaration.name in self.declarations:
            raise invalid("name", f"two families are called {declaration.name!r:.100}; give one a `name`")
        if len(self.declarations) >= FAMILIES_MAX:
            raise invalid("name", f"a keyspace has at most {FAMILIES_MAX} families")
        for other in self.declarations.values():
            refuse_shared(declaration, other)
        self.declarations[declaration.name] = declaration
        self._lookup.add(declaration)

    def add_channel(self, channel: Channel[Any]) -> None:
        if channel.name in self.channels:
            raise invalid("name", f"two channels are called {channel.name!r:.100}; give one a `name`")
        for other in self.channels.values():
            refuse_shared(channel, other)
        self.channels[channel.name] = channel

    def _pattern(self, pattern: str) -> Pattern:
        return parse_pattern(pattern, separator=self.separator, prefix=self.prefix)

    def _family(
        self,
        type: RedisType,
        pattern: str,
        name: str | None,
        handle: Callable[[Declaration, bytes], Any],
        *,
        ttl: float | Ttl | None,
        relations: Iterable[Relation] = (),
        **rest: Any,
    ) -> Family[Any]:
        read = self._pattern(pattern)
        declaration = Declaration(
            name=family_name(read, name),
            keyspace=self.name,
            pattern=read,
            type=type,
            ttl=ttl_of(ttl),
            relations=tuple(relations),
            **rest,
        )
        self.add(declaration)
        return Family(declaration, handle)


def refuse_shared(one: Declaration | Channel[Any], other: Declaration | Channel[Any]) -> None:
    example = shared_key(one.pattern, other.pattern)
    if example is not None:
        shown = example.decode("utf-8", "backslashreplace")
        raise KeyspaceError(
            "KEYSPACE_AMBIGUOUS",
            f"{one.keyspace}/{one.name} and {other.keyspace}/{other.name} share a key: {shown!r:.200}",
            example=shown,
            families=[f"{one.keyspace}/{one.name}", f"{other.keyspace}/{other.name}"],
        )
