"""Every error that MPREG raises or puts on the wire: one tree, one table of codes.

    MpregError
    ├── TransportError      TRANSPORT_*    links: refused, lost, closed
    ├── AuthError           AUTH_*         who is it
    ├── PermissionDenied    PERMISSION_*   may they
    ├── ProtocolError       PROTOCOL_*     a message that can't be read
    ├── TimedOut            TIMEOUT_*      a deadline has passed
    ├── ResourceError       RESOURCE_*     a limit is reached
    ├── RpcError            RPC_*          functions and requests
    ├── PubSubError         PUBSUB_*       topics and subscriptions
    ├── QueueError          QUEUE_*        queues
    ├── CacheError          CACHE_*        the cache
    ├── ClusterError        CLUSTER_*      the nodes of one cluster
    ├── FederationError     FEDERATION_*   between clusters
    ├── StoreError          STORE_*        Valkey or Redis
    ├── KeyspaceError       KEYSPACE_*     declared keys
    ├── MufError            MUF_*          requests and replies as plain keys
    └── ConfigError         CONFIG_*       settings and the program to serve

An error says three things a caller can act on: `code`, whether a repeat may help (`retryable`), and whether
the operation may have had an effect (`state_changed`: False, True, or None when nobody can know).
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple


class MpregError(Exception):
    """The root. `details` are the fields that a program reads; `str(error)` is for people."""

    prefix: ClassVar[str] = ""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        type: str | None = None,
        retryable: bool | None = None,
        state_changed: bool | None = False,
        **details: Any,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.type = type or self.__class__.__name__
        self.details = details
        known = CODES.get(code)
        self.retryable = retryable if retryable is not None else bool(known and known.retryable)
        self.state_changed = state_changed
        self.traceback: str | None = None  # of a function that raised, on a node that runs with debug = true

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.code!r}, {self.message!r}, {self.details!r})"


class TransportError(MpregError):
    prefix = "TRANSPORT_"


class AuthError(MpregError):
    prefix = "AUTH_"


class PermissionDenied(MpregError):
    prefix = "PERMISSION_"


class ProtocolError(MpregError):
    prefix = "PROTOCOL_"


class TimedOut(MpregError):
    prefix = "TIMEOUT_"


class ResourceError(MpregError):
    prefix = "RESOURCE_"


class RpcError(MpregError):
    prefix = "RPC_"


class PubSubError(MpregError):
    prefix = "PUBSUB_"


class QueueError(MpregError):
    prefix = "QUEUE_"


class CacheError(MpregError):
    prefix = "CACHE_"


class ClusterError(MpregError):
    prefix = "CLUSTER_"


class FederationError(MpregError):
    prefix = "FEDERATION_"


class StoreError(MpregError):
    prefix = "STORE_"


class KeyspaceError(MpregError):
    prefix = "KEYSPACE_"


class MufError(MpregError):
    prefix = "MUF_"


class ConfigError(MpregError):
    prefix = "CONFIG_"


class Code(NamedTuple):
    """What a wire code means, and whether the same request may succeed later."""

    retryable: bool
    meaning: str


CODES: dict[str, Code] = {
    "TRANSPORT_CONNECTION_REFUSED": Code(True, "Nothing accepts connections at that address."),
    "TRANSPORT_CONNECTION_LOST": Code(True, "The link broke before the answer came."),
    "TRANSPORT_CIRCUIT_OPEN": Code(True, "The peer failed too often; it is tried again after a pause."),
    "TRANSPORT_CLOSED": Code(False, "This side has closed the link."),
    "TRANSPORT_TLS": Code(False, "The TLS handshake failed or a certificate file is unusable."),
    "TRANSPORT_INVALID_URL": Code(False, "The address can't be read."),
    "PROTOCOL_INVALID_FRAME": Code(False, "The frame is neither JSON nor MessagePack."),
    "PROTOCOL_INVALID_MESSAGE": Code(False, "A field is missing or has the wrong type; `path` names it."),
    "PROTOCOL_UNKNOWN_ROLE": Code(False, "No message has this role, type or what."),
    "PROTOCOL_UNSUPPORTED_VERSION": Code(False, "Another major version of the protocol."),
    "PROTOCOL_UNEXPECTED_MESSAGE": Code(False, "A known message, but not from this side of this link."),
    "PROTOCOL_INTERNAL_ERROR": Code(False, "The node failed to handle the message; its log says why."),
    "PROTOCOL_FRAMING_LOST": Code(False, "The byte stream can't be split into frames any more."),
    "TIMEOUT_EXCEEDED": Code(True, "The request's timeout ran out."),
    "TIMEOUT_CONNECT": Code(True, "No connection within the time allowed."),
    "RESOURCE_FRAME_TOO_LARGE": Code(False, "A single frame over the limit; stream it in chunks."),
    "RESOURCE_MESSAGE_TOO_LARGE": Code(False, "A message over the limit of a streamed message."),
    "RESOURCE_SLOW_CONSUMER": Code(True, "The peer reads too slowly; its link was closed."),
    "RESOURCE_EXHAUSTED": Code(True, "As many requests as allowed are running or waiting."),
    "RESOURCE_SHUTTING_DOWN": Code(True, "The node is stopping and takes no new work."),
    "RPC_FUNCTION_NOT_FOUND": Code(False, "No node has this function."),
    "RPC_RESOURCE_NOT_FOUND": Code(False, "The function exists, but not with these resources."),
    "RPC_INVALID_ARGUMENT": Code(False, "An argument does not fit the function; `path` names it."),
    "RPC_INVALID_REQUEST": Code(False, "The request as a whole can't be planned."),
    "RPC_CYCLE": Code(False, "The commands refer to each other in a circle."),
    "RPC_REFERENCE_NOT_FOUND": Code(False, "A reference names something that the result does not have."),
    "RPC_UNENCODABLE_RESULT": Code(False, "The function returned something that has no encoding."),
    "RPC_FUNCTION_FAILED": Code(False, "The function raised; `type` and `message` are its own."),
    "RPC_INVALID_RESULT": Code(False, "The result is not of the type that the caller asked for; `path` names where."),
    "RPC_CANCELLED": Code(False, "The caller cancelled the request."),
    "MUF_TIMEOUT": Code(True, "No answer came in time; the request may have been run."),
    "MUF_REMOTE": Code(False, "The backend answered with ERR; `payload` is what it said."),
    "MUF_CONNECTION_LOST": Code(True, "The store went away, or the unit was closed, before the answer came."),
    "MUF_ID_IN_USE": Code(False, "A request, or an answer, of this id is there already."),
    "MUF_BUSY": Code(True, "As many calls as allowed are waiting for their answers."),
    "PUBSUB_INVALID_TOPIC": Code(False, "What was to be published names no topic; `limit` says why."),
    "PUBSUB_INVALID_PATTERN": Code(False, "A pattern can't be read; `limit` says why."),
    "PUBSUB_INVALID_SUBSCRIPTION": Code(False, "A field of the subscription is out of range; `field` names it."),
    "PUBSUB_SUBSCRIPTION_EXISTS": Code(False, "The subscription id is in use, here or by another connection."),
    "PUBSUB_SUBSCRIPTION_NOT_FOUND": Code(False, "This connection has no such subscription."),
    "PUBSUB_LIMIT": Code(False, "More subscriptions, patterns or messages than allowed; `limit` says how many."),
    "PUBSUB_UNENCODABLE_PAYLOAD": Code(False, "The payload has no encoding."),
    "PUBSUB_INVALID_PAYLOAD": Code(False, "A payload is not of the type that the subscriber asked for."),
    "PUBSUB_BUFFER_FULL": Code(True, "The program read too slowly: its subscription's buffer is full."),
    "QUEUE_NOT_FOUND": Code(False, "No queue has this name."),
    "QUEUE_EXISTS": Code(False, "The queue exists with other settings, or a subscriber's name is in use."),
    "QUEUE_FULL": Code(True, "The queue holds as many messages as it may; nothing was stored."),
    "QUEUE_STALE_RECEIPT": Code(False, "The message is not in this holder's hands (any more); nothing was changed."),
    "QUEUE_INVALID": Code(False, "A field of a queue message is out of range; `field` names it."),
    "CACHE_INVALID": Code(False, "A field of a cache message is out of range or contradicts another; `path` names it."),
    "CACHE_WRONG_TYPE": Code(False, "The key holds something else than the operation is for; nothing was changed."),
    "CACHE_TOO_LARGE": Code(False, "A value, a structure or an answer over the limit; nothing was changed."),
    "CACHE_OUT_OF_RANGE": Code(False, "An index or a number outside of what can be held; nothing was changed."),
    "CACHE_UNENCODABLE": Code(False, "A value has no encoding."),
    "CACHE_STORE_UNAVAILABLE": Code(True, "The store can't be asked, and the node does not hold the answer."),
    "CACHE_TIMEOUT": Code(True, "The request's `timeout_ms` ran out."),
    "CACHE_LEASE_LOST": Code(False, "The lease ran out, was given up, or the key was deleted meanwhile."),
    "CACHE_STALE_CURSOR": Code(False, "The cursor belongs to another layout of the store; begin anew without one."),
    "CLUSTER_NOT_CLUSTERED": Code(False, "This node is in no cluster, so it links to no other node."),
    "CLUSTER_OTHER_CLUSTER": Code(False, "The nodes are of different clusters."),
    "CLUSTER_WRONG_SECRET": Code(False, "The nodes do not share a secret; the link was closed."),
    "CLUSTER_SECRET_REQUIRED": Code(False, "Beyond loopback, nodes link only with a secret or with certificates."),
    "CLUSTER_NAME_TAKEN": Code(True, "Another node of the cluster has this name."),
    "CLUSTER_ALREADY_LINKED": Code(True, "The two nodes are linked, or about to be, by another link."),
    "CLUSTER_SELF": Code(False, "A node has dialled itself."),
    "CLUSTER_CHECKED": Code(False, "No fault: everything fits, and nothing more was asked for."),
    "CLUSTER_HANDSHAKE": Code(False, "A HELLO that does not belong here; `expected` says what does."),
    "CLUSTER_NODE_NOT_FOUND": Code(False, "No node of the cluster has this name."),
    "CONFIG_UNREADABLE": Code(False, "A settings file can't be read; `file` names it."),
    "CONFIG_INVALID": Code(False, "A setting is unknown or out of range; `setting` names it."),
    "CONFIG_APP": Code(False, "The program to serve can't be loaded, or has no node."),
    "STORE_UNAVAILABLE": Code(True, "The store can't be reached."),
    "STORE_CONNECTION_LOST": Code(True, "The link to the store broke while the command was under way."),
    "STORE_INVALID_URL": Code(False, "The store's address can't be read; `part` names what is wrong."),
    "STORE_AUTH": Code(False, "The store refused user or password."),
    "STORE_REPLY": Code(False, "The store answered with an error."),
    "STORE_NO_SERVER": Code(False, "No Valkey or Redis server binary that can be run; `looked_at` says where."),
    "STORE_SERVER_FAILED": Code(False, "The embedded server does not start or keeps dying; `log` has its last lines."),
    "STORE_DATA_DIR_IN_USE": Code(True, "Another process runs the store of this directory; `holder` says which."),
    "STORE_DATA_DIR": Code(False, "The data directory can't be made, read or written."),
    "STORE_DATA_VERSION": Code(False, "The data was written by another version, which this server can't read."),
    "STORE_DATA_CORRUPT": Code(False, "The data on disk is damaged; nothing was deleted."),
    "STORE_DATA_DURABILITY": Code(False, "The directory holds data that this durability would not read."),
    "STORE_DISK_FULL": Code(True, "No space is left where the store keeps its data."),
    "STORE_INVALID_OPTION": Code(False, "An option is out of its range; `option` names it."),
    "STORE_LOCK_HELD": Code(True, "Someone else holds the lock; `owner` says who, where that is known."),
    "STORE_LOCK_LOST": Code(True, "The lock is no longer this holder's: it ran out, or was taken away."),
    "STORE_CLOSED": Code(False, "This side has closed the store."),
    "STORE_BUSY": Code(True, "As many commands or bytes as allowed are waiting for this store."),
    "STORE_INVALID_COMMAND": Code(False, "The command can't be sent like this; nothing was sent."),
    "STORE_TLS": Code(False, "TLS with the store failed, or one side speaks TLS and the other does not."),
    "STORE_PROTOCOL": Code(False, "What answers is not a Valkey or Redis server."),
    "STORE_UNSUPPORTED_VERSION": Code(False, "The server is older than the oldest that works."),
    "STORE_NOT_PERMITTED": Code(False, "The user may not run this command or touch this key or channel."),
    "STORE_WRONG_TYPE": Code(False, "The key holds a value of another type."),
    "STORE_OUT_OF_MEMORY": Code(True, "The store is at its maxmemory and takes no more."),
    "STORE_READ_ONLY": Code(True, "The server is a replica, or has too few replicas to take writes."),
    "STORE_LOADING": Code(True, "The server is loading its data."),
    "STORE_SCRIPT_BUSY": Code(True, "The server is busy with a script that runs too long."),
    "STORE_SCRIPT_FAILED": Code(False, "A script stopped with an error; what it wrote before stays."),
    "STORE_CANNOT_PERSIST": Code(True, "The store can't write to its disk and refuses writes."),
    "STORE_CROSS_SLOT": Code(False, "The keys of one command are in several slots; `slots` names them."),
    "STORE_CLUSTER_DOWN": Code(True, "The cluster does not serve this slot at the moment."),
    "STORE_NO_EVENTS": Code(
        False, "Keyspace events do not come; `needed` names the flags, `found` those that are set."
    ),
    "STORE_REDIRECTED": Code(True, "The slot moves; the command was redirected too often."),
    "KEYSPACE_INVALID_PATTERN": Code(False, "A key pattern can't be read, or could be read back in two ways."),
    "KEYSPACE_INVALID_DECLARATION": Code(False, "The declaration of a key contradicts itself; `field` names what."),
    "KEYSPACE_AMBIGUOUS": Code(False, "Two declarations share a key; `example` is one."),
    "KEYSPACE_INVALID_VALUE": Code(False, "A value does not fit a key's placeholder; `field` names it."),
    "KEYSPACE_UNENCODABLE": Code(False, "A value does not fit the declared codec or fields."),
    "KEYSPACE_UNDECODABLE": Code(False, "What is stored under a key does not fit its declaration."),
    "KEYSPACE_INVALID_TTL": Code(False, "A TTL outside what the declaration allows."),
    "KEYSPACE_TOO_LARGE": Code(False, "More elements than one call takes; read or write them in parts."),
    "KEYSPACE_INVALID_SCHEMA": Code(False, "A schema can't be read; `path` names the place."),
    "KEYSPACE_SCHEMA_NOT_FOUND": Code(False, "No schema under this file or module name."),
    "KEYSPACE_INVALID_QUERY": Code(False, "A lookup or an option of a tool can't be understood."),
    "KEYSPACE_BACKUP_CORRUPT": Code(False, "A backup is truncated or was edited; nothing was written."),
    "KEYSPACE_BACKUP_VERSION": Code(False, "The server can't read the payloads of this backup; nothing was written."),
    "KEYSPACE_FILE": Code(False, "A file of a tool can't be read or written; `file` names it."),
    "KEYSPACE_RESTORE_EXISTS": Code(False, "Keys of the backup exist already; nothing was written."),
    "KEYSPACE_RESTORE_FAILED": Code(False, "The store refused a record; `done` says how many were restored before."),
    "KEYSPACE_PURGE_FAILED": Code(True, "The store failed during a purge; `deleted` says how many keys went before."),
    "CLUSTER_INVALID_NODE": Code(False, "A node's name, addresses or meta are over a limit or of another form."),
    "CLUSTER_INVALID_KEY": Code(False, "A key of the shared state is too long, empty, or belongs to another node."),
    "CLUSTER_INVALID_VALUE": Code(False, "A value of the shared state is too large or has no encoding; `limit`."),
    "CLUSTER_STATE_FULL": Code(True, "The shared state has no room for another key."),
    "KEYSPACE_PURGE_REFUSED": Code(False, "A purge that would delete too much; nothing was deleted."),
}


def _classes() -> dict[str, type[MpregError]]:
    return {cls.prefix: cls for cls in MpregError.__subclasses__()}


def from_wire(code: str, message: str, type: str | None = None, details: dict[str, Any] | None = None) -> MpregError:
    """The exception for an error that came over the wire; an unknown category is a plain `MpregError`."""
    cls = _classes().get(code.partition("_")[0] + "_", MpregError)
    fields = {k: v for k, v in (details or {}).items() if k not in _RESERVED}
    return cls(code, message, type=type, **fields)


_RESERVED = frozenset({"code", "message", "type", "retryable", "state_changed", "self"})
