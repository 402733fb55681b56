"""Declare the keys of a system once: name, type, TTL, codec; build, parse, document, check and keep them.

    demo = Keyspace("demo", prefix="demo:")
    STATUS = demo.hash("issue:status:{issue:int}", IssueStatus, relations=[relation("process", process="field.by")])
    PROCESS = demo.string("process:{process}", text, ttl=1800, protection="state")

    STATUS.key(issue=123)                        b"demo:issue:status:123"
    await STATUS.at(issue=123).get(store)        an IssueStatus, or None
    demo.family_of(b"demo:issue:status:123")     Match(declaration, values) or None
    demo.family_of(key).declaration              .name .type .ttl .codec .fields .protection .relations .pattern

A `Catalog` joins several keyspaces for tools. `pattern` says how patterns are spelled, `ttl` what a TTL can be,
`relation` how one family leads to another. `mpreg.keyspace.tools` walks, checks, backs up and purges what is declared.
"""

from __future__ import annotations

from mpreg.keyspace.catalog import Catalog, common_glob
from mpreg.keyspace.channel import Channel
from mpreg.keyspace.codec import Codec, custom, decimal, integer, json, msgpack, raw, text
from mpreg.keyspace.declaration import Declaration, Match, Protection, RedisType
from mpreg.keyspace.entry import exists, remaining_s, remove, renew
from mpreg.keyspace.family import Family
from mpreg.keyspace.hash_key import FreeHashKey, HashKey
from mpreg.keyspace.keyspace import Keyspace
from mpreg.keyspace.list_key import ListKey
from mpreg.keyspace.pattern import escape_glob
from mpreg.keyspace.relation import Relation, relation
from mpreg.keyspace.set_key import SetKey
from mpreg.keyspace.stream_key import StreamKey
from mpreg.keyspace.string_key import CounterKey, StringKey
from mpreg.keyspace.ttl import Ttl
from mpreg.keyspace.zset_key import ZsetKey

__all__ = [
    "Catalog",
    "Channel",
    "Codec",
    "CounterKey",
    "Declaration",
    "Family",
    "FreeHashKey",
    "HashKey",
    "Keyspace",
    "ListKey",
    "Match",
    "Protection",
    "RedisType",
    "Relation",
    "SetKey",
    "StreamKey",
    "StringKey",
    "Ttl",
    "ZsetKey",
    "common_glob",
    "custom",
    "decimal",
    "escape_glob",
    "exists",
    "integer",
    "json",
    "msgpack",
    "raw",
    "relation",
    "remaining_s",
    "remove",
    "renew",
    "text",
]
