"""Where the keys of a command are among its arguments. Pure. A cluster needs it to send a command to the right server.

Common commands are in the tables below. Of any other the server is asked once (COMMAND INFO, read by `positions`), or,
where keys move with the options, each time (COMMAND GETKEYS).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from mpreg.errors import StoreError
from mpreg.store.link import Argument


class Range(msgspec.Struct, frozen=True):
    """As COMMAND INFO gives it: every `step`-th argument from `first` to `last`; a negative one counts from the end."""

    first: int
    last: int
    step: int = 1


class Counted(msgspec.Struct, frozen=True):
    """The argument at `at` says how many keys follow it, every `step`-th; `also` is one more key before it."""

    at: int
    step: int = 1
    also: int | None = None


Special: TypeAlias = Callable[[Sequence[Argument]], list[Argument]]
Where: TypeAlias = Range | Counted | Special
NO_KEYS = Range(0, 0, 0)


def _streams(args: Sequence[Argument]) -> list[Argument]:
    """XREAD … STREAMS key… id…"""
    at = next((n for n, arg in enumerate(args) if n and upper(arg) == "STREAMS"), None)
    if at is None:
        return []
    rest = args[at + 1 :]
    return list(rest[: len(rest) // 2])


def _with_store(args: Sequence[Argument]) -> list[Argument]:
    """SORT key … STORE key, GEORADIUS key … STORE|STOREDIST key"""
    keys = list(args[1:2])
    keys += [args[n + 1] for n in range(2, len(args) - 1) if upper(args[n]) in ("STORE", "STOREDIST")]
    return keys


_FIRST = (
    "APPEND BITCOUNT BITFIELD BITFIELD_RO BITPOS DECR DECRBY DELIFEQ DUMP EXPIRE EXPIREAT EXPIRETIME GEOADD GEODIST "
    "GEOHASH GEOPOS GEOSEARCH GET GETBIT GETDEL GETEX GETRANGE GETSET HDEL HEXISTS HEXPIRE HEXPIREAT HEXPIRETIME HGET "
    "HGETALL HGETDEL HGETEX HINCRBY HINCRBYFLOAT HKEYS HLEN HMGET HMSET HPERSIST HPEXPIRE HPEXPIREAT HPEXPIRETIME "
    "HPTTL HRANDFIELD HSCAN HSET HSETEX HSETNX HSTRLEN HTTL HVALS INCR INCRBY INCRBYFLOAT LINDEX LINSERT LLEN LPOP "
    "LPOS LPUSH LPUSHX LRANGE LREM LSET LTRIM PERSIST PEXPIRE PEXPIREAT PEXPIRETIME PFADD PSETEX PTTL RESTORE RPOP "
    "RPUSH RPUSHX SADD SCARD SET SETBIT SETEX SETNX SETRANGE SISMEMBER SMEMBERS SMISMEMBER SPOP SPUBLISH SRANDMEMBER "
    "SREM SSCAN STRLEN TTL TYPE XACK XADD XAUTOCLAIM XCLAIM XDEL XLEN XPENDING XRANGE XREVRANGE XSETID XTRIM ZADD "
    "ZCARD ZCOUNT ZINCRBY ZLEXCOUNT ZMSCORE ZPOPMAX ZPOPMIN ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREM "
    "ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE"
)
_ALL = (
    "DEL EXISTS MGET PFCOUNT PFMERGE SDIFF SDIFFSTORE SINTER SINTERSTORE SSUBSCRIBE SUNION SUNIONSTORE SUNSUBSCRIBE "
    "TOUCH UNLINK WATCH"
)
_TWO = "BLMOVE BRPOPLPUSH COPY GEOSEARCHSTORE LCS LMOVE RENAME RENAMENX RPOPLPUSH SMOVE ZRANGESTORE"
_NONE = (
    "PING ECHO TIME PUBLISH PUBSUB INFO COMMAND CLUSTER ROLE LASTSAVE LOLWUT ACL CLIENT FUNCTION LATENCY "
    "SLOWLOG MODULE HELLO AUTH SELECT SUBSCRIBE PSUBSCRIBE UNSUBSCRIBE PUNSUBSCRIBE"
)
# Sent to any one server, these would answer for a part and look as if it were the whole.
_OF_ONE_SERVER = frozenset(
    [
        *("SCAN", "KEYS", "DBSIZE", "RANDOMKEY", "FLUSHALL", "FLUSHDB", "SWAPDB"),
        *("CONFIG", "SCRIPT", "BGREWRITEAOF", "BGSAVE", "SAVE"),
    ]
)

_WHERE: dict[str, Where] = {
    **dict.fromkeys(_FIRST.split(), Range(1, 1)),
    **dict.fromkeys(_ALL.split(), Range(1, -1)),
    **dict.fromkeys(_TWO.split(), Range(1, 2)),
    **dict.fromkeys(_NONE.split(), NO_KEYS),
    **dict.fromkeys(["MSET", "MSETNX"], Range(1, -1, 2)),
    **dict.fromkeys(["BLPOP", "BRPOP", "BZPOPMAX", "BZPOPMIN"], Range(1, -2)),
    **dict.fromkeys(["EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO", "FCALL", "FCALL_RO", "BLMPOP", "BZMPOP"], Counted(2)),
    **dict.fromkeys(["LMPOP", "SINTERCARD", "ZDIFF", "ZINTER", "ZINTERCARD", "ZMPOP", "ZUNION"], Counted(1)),
    **dict.fromkeys(["ZDIFFSTORE", "ZINTERSTORE", "ZUNIONSTORE"], Counted(2, also=1)),
    "MSETEX": Counted(1, 2),
    "BITOP": Range(2, -1),
    **dict.fromkeys(["XREAD", "XREADGROUP"], _streams),
    **dict.fromkeys(["GEORADIUS", "GEORADIUSBYMEMBER", "SORT"], _with_store),
    **dict.fromkeys(["GEORADIUS_RO", "GEORADIUSBYMEMBER_RO", "SORT_RO"], Range(1, 1)),
    **dict.fromkeys(["MEMORY", "OBJECT", "XGROUP", "XINFO"], Range(2, 2)),
}

FIRST_ONLY: frozenset[str | bytes] = frozenset(
    spelling for name in _FIRST.split() for spelling in (name, name.lower(), name.encode(), name.lower().encode())
)
"""Commands whose one key is their first argument, in the spellings that nearly everybody uses."""


def upper(arg: Argument) -> str:
    if isinstance(arg, bytes):
        return arg.decode("latin-1").upper()
    return arg.upper() if isinstance(arg, str) else str(arg)


def keys_of(args: Sequence[Argument], learned: dict[str, Where]) -> list[Argument] | None:
    """The keys; None for a command that is not known. What a server would find wrong with it, it may say itself."""
    name = upper(args[0])
    if name in _OF_ONE_SERVER:
        raise StoreError(
            "STORE_INVALID_COMMAND",
            f"{name} concerns one server of a cluster; give it to each of `primaries()`, or use `scan()`",
            command=name,
        )
    where = _WHERE.get(name) or learned.get(name)
    return None if where is None else pick(args, where)


def pick(args: Sequence[Argument], where: Where) -> list[Argument]:
    match where:
        case Range(first, last, step):
            if first == 0:
                return []
            end = last if last >= 0 else len(args) + last
            return list(args[first : end + 1 : step])
        case Counted(at, step, also):
            keys = [args[also]] if also is not None and also < len(args) else []
            try:
                count = int(args[at])
            except (IndexError, ValueError, TypeError):
                return keys
            return keys + list(args[at + 1 : at + 1 + max(0, count) * step : step])
    return where(args)


def positions(info: Any) -> Where | None:
    """One entry of COMMAND INFO. None if the keys move, so that each call has to be asked for; NO_KEYS also for a
    command that the server does not know, so that it can say so."""
    if info is None:
        return NO_KEYS
    flags = {flag.decode() if isinstance(flag, bytes) else str(flag) for flag in info[2]}
    if "movablekeys" in flags or (info[3] == 0 and len(info) > 9 and info[9]):
        return None
    return Range(info[3], info[4], info[5])


def as_bytes(key: Argument) -> bytes:
    """A key as it travels: what `pack` makes of it."""
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    return bytes(key) if isinstance(key, memoryview) else repr(key).encode()
