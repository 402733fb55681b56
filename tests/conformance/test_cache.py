"""The note's cache section in raw frames: each of its examples as it stands, and the sentences around them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.conformance.raw import Raw

_numbers = itertools.count(1)


@pytest.fixture
def ns() -> str:
    """A namespace of the test's own."""
    return f"conf{next(_numbers)}"


def key(namespace: str, identifier: str = "a", **rest: Any) -> dict[str, Any]:
    return {"namespace": namespace, "identifier": identifier, **rest}


def ask(raw: Raw, operation: str, **fields: Any) -> dict[str, Any]:
    u = f"cache-{next(_numbers)}"
    reply: dict[str, Any] = raw.ask({"role": "cache-request", "u": u, "operation": operation, **fields})
    assert reply["role"] == "cache-response"
    assert reply["u"] == u
    return reply


def put(raw: Raw, namespace: str, identifier: str, value: Any, **metadata: Any) -> dict[str, Any]:
    fields = {"metadata": metadata} if metadata else {}
    reply = ask(raw, "put", key=key(namespace, identifier), value=value, **fields)
    assert reply["status"] == "stored", reply
    return reply


def get(raw: Raw, namespace: str, identifier: str = "a", **options: Any) -> Any:
    """The value; raises KeyError for a miss."""
    reply = ask(raw, "get", key=key(namespace, identifier), options=options)
    assert reply["status"] in ("hit", "miss"), reply
    return reply["entry"]["value"]


def atomic(raw: Raw, namespace: str, operation_type: str, identifier: str = "a", **fields: Any) -> dict[str, Any]:
    return ask(
        raw, "atomic", key=key(namespace, identifier), atomic_operation={"operation_type": operation_type, **fields}
    )


def structure(
    raw: Raw, namespace: str, kind: str, operation: str, identifier: str = "s", **fields: Any
) -> dict[str, Any]:
    return ask(
        raw,
        "structure",
        key=key(namespace, identifier),
        structure_operation={"structure_type": kind, "operation": operation, **fields},
    )


def namespace_operation(raw: Raw, namespace: str, operation_type: str, **fields: Any) -> dict[str, Any]:
    return ask(
        raw, "namespace", namespace_operation={"operation_type": operation_type, "namespace": namespace, **fields}
    )


def error_of(reply: dict[str, Any]) -> tuple[str, str | None]:
    assert reply["status"] == "error", reply
    return reply["error"]["code"], reply["error"].get("details", {}).get("path")


# --- the examples of the note -----------------------------------------------------------------------------------------


def test_cache_request_and_cache_response(raw: Raw) -> None:
    where = {
        "namespace": "compute.results",
        "identifier": "sha256:abc123...",
        "version": "v1.2.3",
        "tags": ["expensive", "ml-model"],
    }
    value = {"result": "computed-data", "metadata": {"a": 1}}
    metadata = {"computation_cost_ms": 15420.0, "dependencies": ["input:abc123", "model:def456"], "ttl_seconds": 3600}
    stored = ask(raw, "put", key=where, value=value, metadata=metadata)
    assert stored["status"] == "stored"
    reply = raw.ask(
        {
            "role": "cache-request",
            "u": "cache-88888",
            "operation": "get",
            "key": where,
            "options": {
                "include_metadata": True,
                "consistency_level": "eventual",
                "timeout_ms": 5000,
                "cache_levels": ["L1", "L2", "L3"],
                "replication_factor": 2,
            },
        }
    )
    assert reply["role"] == "cache-response"
    assert reply["u"] == "cache-88888"
    assert reply["status"] == "hit"
    assert reply["cache_level"] in ("L1", "L2", "L3")
    entry = reply["entry"]
    assert entry["key"] == where
    assert entry["value"] == value
    assert entry["access_count"] >= 1
    assert entry["computation_cost_ms"] == 15420.0
    assert entry["size_bytes"] > 20
    assert entry["dependencies"] == ["input:abc123", "model:def456"]
    assert entry["ttl_seconds"] == 3600
    assert entry["creation_time"] <= entry["last_access_time"] + 1
    assert {"lookup_time_ms", "network_hops", "cache_efficiency"} <= reply["performance"].keys()


def test_get_operation_strong(plain: Raw, ns: str) -> None:
    put(plain, ns, "a", 1)
    reply = plain.ask(
        {
            "role": "cache-request",
            "u": "cache-11111",
            "operation": "get",
            "key": key(ns),
            "options": {"consistency_level": "strong"},
        }
    )
    assert (reply["status"], reply["cache_level"], reply["entry"]["value"]) == ("hit", "L3", 1)


def test_put_operation(plain: Raw, ns: str) -> None:
    reply = plain.ask(
        {
            "role": "cache-request",
            "u": "cache-22222",
            "operation": "put",
            "key": key(ns),
            "value": {"any": "thing"},
            "metadata": {
                "computation_cost_ms": 5000.0,
                "dependencies": ["input:xyz789"],
                "ttl_seconds": 7200,
                "replication_policy": "async",
            },
        }
    )
    assert reply["status"] == "stored"
    assert get(plain, ns) == {"any": "thing"}


def test_delete_operation_cascades(plain: Raw, ns: str) -> None:
    put(plain, ns, "a", 1)
    put(plain, ns, "b", 2, dependencies=[f"{ns}:a"])
    put(plain, ns, "c", 3, dependencies=[f"{ns}:b"])
    put(plain, ns, "d", 4)
    reply = plain.ask(
        {
            "role": "cache-request",
            "u": "cache-33333",
            "operation": "delete",
            "key": key(ns),
            "options": {"cascade_dependencies": True, "replication_propagate": True},
        }
    )
    assert (reply["status"], reply["result"]["count"]) == ("deleted", 3)
    assert ask(plain, "get", key=key(ns, "c"))["status"] == "miss"
    assert get(plain, ns, "d") == 4


def test_invalidate_operation(plain: Raw, ns: str) -> None:
    put(plain, ns, "x", 1)
    put(plain, ns, "y.z", 2)
    reply = plain.ask(
        {
            "role": "cache-request",
            "u": "cache-44444",
            "operation": "invalidate",
            "pattern": f"{ns}.*",
            "options": {"reason": "dependency_changed", "source_change": "input:abc123"},
        }
    )
    assert (reply["status"], reply["result"]["count"]) == ("invalidated", 2)
    assert ask(plain, "get", key=key(ns, "x"))["status"] == "miss"


def test_replication_policy_is_understood(plain: Raw, ns: str) -> None:
    policy = {
        "strategy": "geographic",
        "min_replicas": 2,
        "max_replicas": 5,
        "preferred_regions": ["us-west", "eu-west", "ap-southeast"],
        "consistency_model": "eventual",
        "conflict_resolution": "last_writer_wins",
    }
    put(plain, ns, "a", 1, replication_policy=policy)
    assert get(plain, ns) == 1


def test_gossip_of_the_cache_is_not_taken_from_a_client(plain: Raw) -> None:
    reply = plain.ask(
        {
            "role": "gossip",
            "message_type": "cache_update",
            "payload": {
                "operation": "put",
                "key": key("compute.results"),
                "value_hash": "sha256:def456...",
                "metadata": {},
                "vector_clock": {},
                "replication_sites": ["us-west-1", "eu-west-1"],
            },
        }
    )
    assert reply["role"] == "error-response"


def test_cache_analytics(plain: Raw, ns: str) -> None:
    put(plain, ns, "a", 1)
    get(plain, ns)
    ask(plain, "get", key=key(ns, "absent"))
    reply = plain.ask({"role": "cache-analytics", "u": "analytics-99999", "namespace": ns})
    assert (reply["role"], reply["u"]) == ("cache-analytics", "analytics-99999")
    statistics = reply["statistics"]
    assert statistics["operations"]["get_requests"] == 2
    assert statistics["operations"]["put_requests"] == 1
    performance = statistics["performance"]
    assert performance["miss_ratio"] == 0.5
    assert performance["hit_ratio_l1"] + performance["hit_ratio_l2"] + performance["hit_ratio_l3"] == 0.5
    assert {"computation_time_saved_ms", "network_requests_avoided"} <= statistics["cost_savings"].keys()
    as_printed = {
        "role": "cache-analytics",
        "u": "analytics-1",
        "period": {"start": 1640995200.123, "end": 1640998800.123, "duration_seconds": 3600},
    }
    assert plain.ask(as_printed)["statistics"]["operations"]["get_requests"] == 0


def test_atomic_operation(plain: Raw) -> None:
    request = {
        "role": "cache-request",
        "u": "atomic-12345",
        "operation": "atomic",
        "key": {"namespace": "locks", "identifier": f"resource_{next(_numbers)}", "version": "v1"},
        "atomic_operation": {
            "operation_type": "test_and_set",
            "expected_value": None,
            "new_value": {"owner": "worker_001", "acquired_at": 1640995200.123},
            "ttl_seconds": 300,
            "conditions": {"if_not_exists": True},
            "create_if_missing": True,
        },
        "options": {"consistency_level": "strong", "timeout_ms": 5000},
    }
    reply = plain.ask(request)
    assert (reply["u"], reply["status"]) == ("atomic-12345", "stored")
    new = {"owner": "worker_001", "acquired_at": 1640995200.123}
    assert reply["result"].items() >= {"success": True, "old_value": None, "new_value": new}.items()
    again = plain.ask(request)
    assert again["status"] == "conflict"
    assert again["result"]["success"] is False
    assert again["result"]["old_value"] == new


def test_data_structure_operation(plain: Raw, ns: str) -> None:
    reply = plain.ask(
        {
            "role": "cache-request",
            "u": "struct-67890",
            "operation": "structure",
            "key": {"namespace": ns, "identifier": "user_123"},
            "structure_operation": {
                "structure_type": "set",
                "operation": "add",
                "values": ["read_posts", "write_comments"],
                "options": {"create_if_missing": True, "return_size": True},
            },
        }
    )
    assert (reply["status"], reply["result"]) == ("stored", {"changed": 2, "size": 2})


def test_set_operations(plain: Raw, ns: str) -> None:
    def of(operation: str, identifier: str = "s", **fields: Any) -> Any:
        return structure(plain, ns, "set", operation, identifier, **fields)["result"]

    assert of("add", values=["item1", "item2"]) == {"changed": 2, "size": 2}
    assert of("add", "other", values=["item2", {"b": 1, "a": 2}])["size"] == 2
    assert of("add", "other", values=[{"a": 2, "b": 1}])["size"] == 2  # the same value, however its keys are ordered
    assert of("contains", values=["item1", "item9"]) == {"values": [True, False]}
    others = {"other_sets": [f"{ns}:other"]}
    union = of("union", options=others)["values"]
    assert sorted(union, key=str) == ["item1", "item2", {"a": 2, "b": 1}]
    assert of("intersection", options=others) == {"values": ["item2"]}
    assert of("difference", options=others) == {"values": ["item1"]}
    assert of("remove", values=["item1", "item9"]) == {"changed": 1, "size": 1}
    assert of("size") == {"size": 1}
    assert of("members") == {"values": ["item2"]}
    assert structure(plain, ns, "set", "size", "absent")["status"] == "miss"


def test_list_operations(plain: Raw, ns: str) -> None:
    def of(operation: str, **fields: Any) -> Any:
        return structure(plain, ns, "list", operation, **fields)["result"]

    assert of("append", values=[{"item": "data"}, 2]) == {"size": 2}
    assert of("prepend", values=["a", "b"]) == {"size": 4}
    assert of("insert", values=["x", "y"], index=1) == {"size": 6}
    everything = ["a", "x", "y", "b", {"item": "data"}, 2]
    assert of("get_range", range_spec={"start": 0, "end": 10}) == {"values": everything}
    assert of("get_range", range_spec={"start": 1, "end": 3}) == {"values": ["x", "y"]}
    assert of("get_range", range_spec={"start": -2}) == {"values": [{"item": "data"}, 2]}
    assert of("length") == {"size": 6}
    assert of("pop_front") == {"value": "a", "size": 5}
    assert of("pop_back") == {"value": 2, "size": 4}
    for _ in range(4):
        of("pop_front")
    reply = structure(plain, ns, "list", "pop_back")
    assert reply["status"] == "miss"


def test_map_operations(plain: Raw, ns: str) -> None:
    def of(operation: str, **fields: Any) -> Any:
        return structure(plain, ns, "map", operation, **fields)["result"]

    updates = {"user.last_login": 1640995200.123, "user.login_count": {"operation": "increment", "value": 1}}
    assert of("set_field", field_updates=updates) == {"changed": 2, "size": 1}
    of("set_field", field_updates=updates)
    of("set_field", field_updates={"user.email": "a@b.c", "user.preferences": {"theme": "dark", "size": {}}})
    found = of("get_fields", fields=["user.email", "user.preferences.theme", "user.absent"])
    assert found == {"fields": {"user.email": "a@b.c", "user.preferences.theme": "dark"}}
    assert of("get_fields", fields=["user"])["fields"]["user"] == {
        "last_login": 1640995200.123,
        "login_count": 2,
        "email": "a@b.c",
        "preferences": {"theme": "dark", "size": {}},
    }
    assert of("increment_field", field_updates={"user.login_count": 5}) == {"value": 7}
    assert of("keys") == {"values": ["user"]}
    assert of("values")["values"][0]["login_count"] == 7
    assert of("remove_fields", fields=["user.email", "user.preferences", "nothing"]) == {"changed": 2, "size": 1}


def test_sorted_set_operations(plain: Raw, ns: str) -> None:
    def of(operation: str, **fields: Any) -> Any:
        return structure(plain, ns, "sorted_set", operation, **fields)["result"]

    scored = [{"value": "player_123", "score": 95000}, {"value": "p2", "score": 500}, {"value": "p3", "score": 2000.5}]
    assert of("add_scored", scored_values=scored) == {"changed": 3, "size": 3}
    assert of("get_top", limit=2) == {"scored_values": [scored[0], scored[2]]}
    assert of("get_bottom", limit=1) == {"scored_values": [scored[1]]}
    within = {"min_score": 1000, "max_score": 10000}
    assert of("get_range", limit=10, range_spec=within) == {"scored_values": [scored[2]]}
    assert of("get_score", values=["p2", "nobody"]) == {"scores": [500, None]}
    assert of("remove", values=["p2", "nobody"]) == {"changed": 1, "size": 2}


def test_namespace_operation(plain: Raw, ns: str) -> None:
    put(plain, ns, "expired_1", 1, ttl_seconds=30)
    put(plain, ns, "expired_2", 1, ttl_seconds=3000)
    put(plain, ns, "other", 1, ttl_seconds=30)
    request = {
        "operation_type": "clear",
        "namespace": ns,
        "pattern": "expired_*",
        "conditions": {"ttl_remaining": {"$lt": 60}, "access_count": {"$eq": 0}},
        "max_entries": 1000,
        "dry_run": True,
    }
    reply = plain.ask(
        {"role": "cache-request", "u": "ns-54321", "operation": "namespace", "namespace_operation": request}
    )
    assert reply["result"].items() >= {"matched": 1, "removed": 0}.items()
    assert get(plain, ns, "expired_1") == 1
    put(plain, ns, "expired_1", 1, ttl_seconds=30)  # written anew: no use is counted
    reply = ask(plain, "namespace", namespace_operation={**request, "dry_run": False})
    assert reply["result"].items() >= {"matched": 1, "removed": 1}.items()
    assert ask(plain, "get", key=key(ns, "expired_1"))["status"] == "miss"
    assert get(plain, ns, "expired_2") == get(plain, ns, "other") == 1


def test_namespace_operation_types(plain: Raw, ns: str) -> None:
    for n in range(5):
        put(plain, ns, f"k{n}", n)
    structure(plain, ns, "set", "add", "set", values=[1])
    statistics = namespace_operation(plain, ns, "statistics", include_detailed_breakdown=True, sample_size=100)
    assert statistics["result"]["keys"] == 6
    assert statistics["result"]["breakdown"]["kinds"] == {"value": 5, "set": 1}
    listed = namespace_operation(plain, ns, "list_keys", pattern="k*", limit=10, offset=0)["result"]
    assert sorted(found["identifier"] for found in listed["keys"]) == ["k0", "k1", "k2", "k3", "k4"]
    assert listed["cursor"] is None
    saved = namespace_operation(plain, ns, "backup", backup_format="msgpack", compression="gzip")["result"]
    assert saved["count"] == 6
    assert namespace_operation(plain, ns, "clear")["result"]["removed"] == 6
    put(plain, ns, "k0", "newer")
    data = saved["data"]
    restored = namespace_operation(plain, ns, "restore", data=data, merge_strategy="skip")
    assert (restored["status"], restored["result"]) == ("stored", {"restored": 5, "skipped": 1})
    assert get(plain, ns, "k0") == "newer"
    assert get(plain, ns, "k4") == 4
    assert structure(plain, ns, "set", "members", "set")["result"] == {"values": [1]}
    assert namespace_operation(plain, ns, "restore", data=data, merge_strategy="replace")["result"]["restored"] == 6
    assert get(plain, ns, "k0", consistency_level="strong") == 0


def test_cache_and_pubsub_integration(plain: Raw, ns: str, dial: Any) -> None:
    listener = dial("ws", "json")
    topic = f"cache.inventory.updates.{ns}"
    subscription = {"subscription_id": f"sub-{ns}", "patterns": [{"pattern": topic}]}
    ack = listener.ask({"role": "pubsub-subscribe", "u": "1", "ack": True, "subscription": subscription})
    assert ack["role"] == "pubsub-ack"
    options = {
        "notify_on_change": True,
        "notification_topic": topic,
        "notification_payload": {"change_type": "stock_level_update", "product_id": "product_123"},
        "notification_condition": {"field_path": "stock_level", "threshold": {"$lt": 10}},
    }
    ask(plain, "put", key=key(ns), value={"stock_level": 50}, options=options)
    ask(plain, "put", key=key(ns), value={"stock_level": 5}, options=options)
    message = listener.receive()["message"]
    assert message["topic"] == topic
    assert (
        message["payload"].items()
        >= {
            "change_type": "stock_level_update",
            "product_id": "product_123",
            "cache_key": {"namespace": ns, "identifier": "a", "version": "v1"},
            "old_value": {"stock_level": 50},
            "new_value": {"stock_level": 5},
        }.items()
    )


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "code", "path"),
    [
        ({"key": {"namespace": "", "identifier": "a"}}, "CACHE_INVALID", "$.key.namespace"),
        ({"key": {"namespace": "n", "identifier": ""}}, "CACHE_INVALID", "$.key.identifier"),
        ({"key": {"namespace": "n", "identifier": "x" * 10_000}}, "CACHE_INVALID", "$.key.identifier"),
        ({"key": {"namespace": "n", "identifier": "a", "tags": [""]}}, "CACHE_INVALID", "$.key.tags[0]"),
        ({"metadata": {"ttl_seconds": 0}}, "CACHE_INVALID", "$.metadata.ttl_seconds"),
        ({"metadata": {"ttl_seconds": -1}}, "CACHE_INVALID", "$.metadata.ttl_seconds"),
        ({"metadata": {"ttl_seconds": 100 * 366 * 86400}}, "CACHE_INVALID", "$.metadata.ttl_seconds"),
        ({"metadata": {"computation_cost_ms": -1}}, "CACHE_INVALID", "$.metadata.computation_cost_ms"),
        ({"metadata": {"stale_seconds": 5}}, "CACHE_INVALID", "$.metadata.stale_seconds"),
        ({"metadata": {"dependencies": ["d" * 600]}}, "CACHE_INVALID", "$.metadata.dependencies[0]"),
        ({"options": {"timeout_ms": 0}}, "CACHE_INVALID", "$.options.timeout_ms"),
        ({"options": {"cache_levels": []}}, "CACHE_INVALID", "$.options.cache_levels"),
        ({"options": {"cache_levels": ["L1"]}}, "CACHE_INVALID", "$.options.cache_levels"),
        ({"options": {"replication_factor": 0}}, "CACHE_INVALID", "$.options.replication_factor"),
        ({"options": {"lease": "x"}}, "CACHE_INVALID", "$.options.lease"),
        ({"options": {"lease": "12345"}}, "CACHE_LEASE_LOST", None),
        (
            {"options": {"notify_on_change": True, "notification_topic": "a.*"}},
            "CACHE_INVALID",
            "$.options.notification_topic",
        ),
    ],
)
def test_a_put_that_can_not_be_is_refused_by_its_field(
    plain: Raw, ns: str, changes: dict[str, Any], code: str, path: str | None
) -> None:
    fields: dict[str, Any] = {"key": key(ns), "value": 1, **changes}
    assert error_of(ask(plain, "put", **fields)) == (code, path)
    assert ask(plain, "get", key=key(ns))["status"] == "miss"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"operation": "fetch"}, "$.operation"),
        ({"options": {"cache_levels": ["L9"]}}, "$.options.cache_levels[0]"),
        ({"options": {"consistency_level": "sometimes"}}, "$.options.consistency_level"),
        ({"key": {"namespace": "n"}}, "$.key.identifier"),
        (
            {"operation": "structure", "structure_operation": {"structure_type": "heap", "operation": "add"}},
            "$.structure_operation.structure_type",
        ),
        (
            {"operation": "atomic", "atomic_operation": {"operation_type": "square"}},
            "$.atomic_operation.operation_type",
        ),
    ],
)
def test_what_the_protocol_does_not_know_is_told_with_its_path(plain: Raw, changes: dict[str, Any], path: str) -> None:
    reply = plain.ask({"role": "cache-request", "u": "u1", "operation": "get", "key": key("n"), **changes})
    assert (reply["role"], reply["u"], reply["error"]["code"]) == ("error-response", "u1", "PROTOCOL_INVALID_MESSAGE")
    assert reply["error"]["details"]["path"].startswith(path)


def test_null_is_a_value(plain: Raw, ns: str) -> None:
    put(plain, ns, "a", None)
    reply = ask(plain, "get", key=key(ns))
    assert reply["status"] == "hit"
    assert reply["entry"] == {"value": None}


def test_a_put_needs_a_value_and_a_key(plain: Raw, ns: str) -> None:
    assert error_of(ask(plain, "put", key=key(ns))) == ("CACHE_INVALID", "$.value")
    assert error_of(ask(plain, "put", value=1)) == ("CACHE_INVALID", "$.key")


def test_a_value_over_the_limit_is_refused(plain: Raw, ns: str) -> None:
    reply = ask(plain, "put", key=key(ns), value="x" * 16_000_001)
    assert error_of(reply) == ("CACHE_TOO_LARGE", "$.value")
    assert reply["error"]["details"]["limit"] == 16_000_000


def test_what_is_no_number_is_not_incremented(plain: Raw, ns: str) -> None:
    put(plain, ns, "a", "text")
    assert error_of(atomic(plain, ns, "increment"))[0] == "CACHE_WRONG_TYPE"
    assert get(plain, ns) == "text"


@pytest.mark.parametrize("by", ["1", True, None])
def test_an_increment_that_is_no_number_is_refused(plain: Raw, ns: str, by: Any) -> None:
    reply = plain.ask(
        {
            "role": "cache-request",
            "u": "u1",
            "operation": "atomic",
            "key": key(ns),
            "atomic_operation": {"operation_type": "increment", "increment_by": by},
        }
    )
    assert reply["error"]["code"] in ("PROTOCOL_INVALID_MESSAGE", "CACHE_INVALID")


def test_a_structure_operation_on_another_type_changes_nothing(plain: Raw, ns: str) -> None:
    structure(plain, ns, "set", "add", values=[1])
    put(plain, ns, "value", 1)
    for reply in (
        structure(plain, ns, "list", "append", values=[2]),
        structure(plain, ns, "map", "set_field", field_updates={"a": 1}),
        structure(plain, ns, "sorted_set", "add_scored", scored_values=[{"value": 1, "score": 1}]),
        structure(plain, ns, "set", "add", "value", values=[2]),
        ask(plain, "get", key=key(ns, "s")),
        ask(plain, "put", key=key(ns, "s"), value=1),
        atomic(plain, ns, "increment", "s"),
    ):
        assert error_of(reply)[0] == "CACHE_WRONG_TYPE"
    assert structure(plain, ns, "set", "members")["result"] == {"values": [1]}
    assert get(plain, ns, "value") == 1


def test_structure_operations_say_which_field_is_wrong(plain: Raw, ns: str) -> None:
    structure(plain, ns, "list", "append", values=[1])
    structure(plain, ns, "map", "set_field", "m", field_updates={"a": 1})
    for reply, code in (
        (structure(plain, ns, "list", "insert", values=[1], index=3), "CACHE_OUT_OF_RANGE"),
        (structure(plain, ns, "list", "insert", values=[1]), "CACHE_INVALID"),
        (structure(plain, ns, "list", "add", values=[1]), "CACHE_INVALID"),
        (structure(plain, ns, "set", "add", "t"), "CACHE_INVALID"),
        (structure(plain, ns, "set", "union", "t"), "CACHE_INVALID"),
        (structure(plain, ns, "set", "union", "t", options={"other_sets": ["no colon"]}), "CACHE_INVALID"),
        (structure(plain, ns, "map", "set_field", "m", field_updates={"a.b": 1}), "CACHE_WRONG_TYPE"),
        (structure(plain, ns, "map", "set_field", "m", field_updates={"x..y": 1}), "CACHE_INVALID"),
        (structure(plain, ns, "map", "set_field", "m", field_updates={"x": 1, "x.y": 2}), "CACHE_INVALID"),
        (structure(plain, ns, "map", "increment_field", "m", field_updates={"a": "1"}), "CACHE_INVALID"),
        (structure(plain, ns, "sorted_set", "get_top", "z", limit=0), "CACHE_INVALID"),
    ):
        assert error_of(reply)[0] == code, reply
    assert structure(plain, ns, "list", "get_range")["result"] == {"values": [1]}
    assert structure(plain, ns, "map", "get_fields", "m", fields=["a"])["result"] == {"fields": {"a": 1}}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"pattern": "*"}, "$.pattern"),
        ({"pattern": "*.*"}, "$.pattern"),
        ({"pattern": "a..b"}, "$.pattern"),
        ({"pattern": ""}, "$.pattern"),
        ({}, "$.pattern"),
        ({"pattern": "a.*", "tag": "t"}, "$.tag"),
        ({"tag": ""}, "$.tag[0]"),
    ],
)
def test_an_invalidation_that_is_not_clear_is_refused(plain: Raw, fields: dict[str, Any], path: str) -> None:
    assert error_of(ask(plain, "invalidate", **fields)) == ("CACHE_INVALID", path)


@pytest.mark.parametrize(
    ("conditions", "path"),
    [
        ({"colour": {"$eq": 1}}, "conditions.colour"),
        ({"age": {"$like": 1}}, "conditions.age.$like"),
        ({"age": {"$lt": 5, "$gt": 10}}, "conditions.age"),
        ({"age": {"$eq": 5, "$gt": 10}}, "conditions.age"),
        ({"age": {"$lt": "5"}}, "conditions.age.$lt"),
        ({"age": {"$in": []}}, "conditions.age.$in"),
        ({"age": {}}, "conditions.age"),
    ],
)
def test_conditions_that_nothing_can_fulfil_are_refused(
    plain: Raw, ns: str, conditions: dict[str, Any], path: str
) -> None:
    reply = namespace_operation(plain, ns, "clear", conditions=conditions)
    assert error_of(reply) == ("CACHE_INVALID", f"$.namespace_operation.{path}")


def test_a_cursor_and_a_backup_that_are_none_are_refused(plain: Raw, ns: str) -> None:
    assert error_of(namespace_operation(plain, ns, "list_keys", cursor="1.2"))[0] == "CACHE_STALE_CURSOR"
    reply = namespace_operation(plain, ns, "restore", data="AAAA" if plain.encoding == "json" else b"AAAA")
    assert error_of(reply) == ("CACHE_INVALID", "$.namespace_operation.data")


# --- exact operations -------------------------------------------------------------------------------------------------


def test_numbers_are_exact_and_what_can_not_be_is_refused(plain: Raw, ns: str) -> None:
    assert atomic(plain, ns, "increment", initial_value=10, increment_by=5)["result"]["new_value"] == 15
    assert atomic(plain, ns, "decrement", increment_by=20)["result"]["new_value"] == -5
    assert atomic(plain, ns, "increment", increment_by=0.5)["result"]["new_value"] == -4.5
    put(plain, ns, "a", 2**53 - 1)
    assert error_of(atomic(plain, ns, "increment"))[0] == "CACHE_OUT_OF_RANGE"
    assert get(plain, ns) == 2**53 - 1
    assert atomic(plain, ns, "increment", "absent", create_if_missing=False)["status"] == "conflict"


def test_compare_and_swap_compares_values_not_bytes(plain: Raw, ns: str) -> None:
    put(plain, ns, "a", {"x": 1, "y": [1, 2]})
    wrong = atomic(plain, ns, "compare_and_swap", expected_value={"x": 1.0, "y": [1, 2]}, new_value=2)
    assert (wrong["status"], wrong["result"]["success"]) == ("conflict", False)
    right = atomic(plain, ns, "compare_and_swap", expected_value={"y": [1, 2], "x": 1}, new_value=2)
    assert (right["status"], right["result"]["new_value"]) == ("stored", 2)
    assert right["result"]["version"] > wrong["result"]["version"]
    absent = atomic(plain, ns, "compare_and_swap", "absent", expected_value=None, new_value=1)
    assert absent["status"] == "conflict"
    created = atomic(plain, ns, "compare_and_swap", "absent", expected_value=None, new_value=1, create_if_missing=True)
    assert created["status"] == "stored"


def test_append_and_prepend_take_texts_and_lists(plain: Raw, ns: str) -> None:
    assert atomic(plain, ns, "append", new_value="b")["result"]["new_value"] == "b"
    assert atomic(plain, ns, "append", new_value="c" * 40)["result"]["new_value"] == "b" + "c" * 40
    assert atomic(plain, ns, "prepend", new_value="ä")["result"]["new_value"] == "äb" + "c" * 40
    assert error_of(atomic(plain, ns, "append", new_value=1))[0] == "CACHE_WRONG_TYPE"
    assert atomic(plain, ns, "append", "l", new_value=1)["result"]["new_value"] == [1]
    assert atomic(plain, ns, "prepend", "l", new_value=[0])["result"]["new_value"] == [[0], 1]
    for n in range(20):
        atomic(plain, ns, "append", "l", new_value=n)
    assert get(plain, ns, "l") == [[0], 1, *range(20)]


def test_an_atomic_write_without_ttl_keeps_the_ttl(plain: Raw, ns: str) -> None:
    put(plain, ns, "a", 1, ttl_seconds=1000)
    atomic(plain, ns, "increment")
    entry = ask(plain, "get", key=key(ns), options={"include_metadata": True})["entry"]
    assert entry["value"] == 2
    assert 900 < entry["ttl_remaining"] <= 1000
    extended = atomic(plain, ns, "extend_ttl", ttl_seconds=5000)
    assert 4900 < extended["result"]["ttl_remaining"] <= 5000
    assert 4900 < atomic(plain, ns, "extend_ttl", ttl_seconds=10)["result"]["ttl_remaining"] <= 5000
    assert atomic(plain, ns, "extend_ttl", "absent", ttl_seconds=10)["status"] == "conflict"


def test_conditions_that_exclude_each_other_are_refused(plain: Raw, ns: str) -> None:
    reply = atomic(plain, ns, "test_and_set", expected_value=5, new_value=1, conditions={"if_not_exists": True})
    assert error_of(reply) == ("CACHE_INVALID", "$.atomic_operation.expected_value")


def test_invalidate_by_tag_and_dependency(plain: Raw, ns: str) -> None:
    for n in range(4):
        tagged = key(ns, f"t{n}", tags=[f"{ns}-tag"])
        ask(plain, "put", key=tagged, value=n, metadata={"dependencies": [f"{ns}-input"] if n % 2 else []})
    put(plain, ns, "child", 1, dependencies=[f"{ns}:t1"])
    assert ask(plain, "invalidate", dependency=f"{ns}-input")["result"]["count"] == 3
    assert ask(plain, "invalidate", tag=f"{ns}-tag")["result"]["count"] == 2
    assert ask(plain, "invalidate", tag=f"{ns}-tag")["result"]["count"] == 0


def test_a_delete_is_not_undone_by_what_was_computed_before_it(plain: Raw, ns: str) -> None:
    leased = ask(plain, "get", key=key(ns), options={"lease_ms": 60_000})
    assert leased["status"] == "miss"
    ask(plain, "delete", key=key(ns))
    late = ask(plain, "put", key=key(ns), value="old", options={"lease": leased["lease"]})
    assert error_of(late)[0] == "CACHE_LEASE_LOST"
    assert ask(plain, "get", key=key(ns))["status"] == "miss"


def test_who_waits_gets_the_value_that_another_computes(plain: Raw, ns: str, dial: Any) -> None:
    other = dial("ws", "json")
    leased = ask(plain, "get", key=key(ns), options={"lease_ms": 60_000})
    other.send({"role": "cache-request", "u": "w", "operation": "get", "key": key(ns), "options": {"lease_ms": 60_000}})
    ask(plain, "put", key=key(ns), value="computed", options={"lease": leased["lease"]})
    reply = other.receive()
    assert (reply["u"], reply["status"], reply["entry"]["value"]) == ("w", "hit", "computed")
    assert "lease" not in reply


def test_a_connection_that_breaks_gives_its_lease_to_the_next(plain: Raw, ns: str, dial: Any) -> None:
    first = dial("ws", "json")
    assert ask(first, "get", key=key(ns), options={"lease_ms": 600_000})["lease"]
    plain.send({"role": "cache-request", "u": "w", "operation": "get", "key": key(ns), "options": {"lease_ms": 60_000}})
    first.abort()
    reply = plain.receive()
    assert reply["status"] == "miss"
    assert reply["lease"]


def test_a_value_may_be_served_stale_while_one_computes_it_anew(plain: Raw, ns: str) -> None:
    put(plain, ns, "a", "old", ttl_seconds=0.001, stale_seconds=1000)
    reply = ask(plain, "get", key=key(ns), options={"lease_ms": 60_000, "consistency_level": "strong"})
    while "lease" not in reply:
        reply = ask(plain, "get", key=key(ns), options={"lease_ms": 60_000, "consistency_level": "strong"})
    assert (reply["status"], reply["stale"], reply["entry"]["value"]) == ("hit", True, "old")
    again = ask(plain, "get", key=key(ns), options={"lease_ms": 60_000})
    assert (again["stale"], again.get("lease")) == (True, None)
    ask(plain, "put", key=key(ns), value="new", options={"lease": reply["lease"]})
    assert get(plain, ns) == "new"


def test_get_many(plain: Raw, ns: str) -> None:
    put(plain, ns, "a", 1)
    put(plain, ns, "b", None)
    reply = ask(plain, "get_many", keys=[key(ns, "b"), key(ns, "x"), key(ns, "a")])
    assert reply["entries"] == [{"value": None}, None, {"value": 1}]
    assert error_of(ask(plain, "get_many", keys=[key(ns), key("")])) == ("CACHE_INVALID", "$.keys[1].namespace")


def test_a_watching_connection_is_told_what_changes(plain: Raw, ns: str, dial: Any) -> None:
    watcher = dial("tcp", "msgpack")
    reply = watcher.ask({"role": "cache-watch", "u": "1", "namespaces": [ns]})
    assert reply["role"] == "cache-response"
    version = put(plain, ns, "a", 1)["result"]["version"]
    put(plain, "elsewhere", "a", 1)
    told = watcher.receive()
    assert told["role"] == "cache-changed"
    (change,) = told["changes"]
    assert change.items() >= {"operation": "put", "namespace": ns, "identifier": "a", "version": version}.items()
    ask(plain, "delete", key=key(ns))
    assert watcher.receive()["changes"][0]["operation"] == "delete"


def test_a_list_of_keys_is_paged_by_cursor(plain: Raw, ns: str) -> None:
    for n in range(30):
        put(plain, ns, f"k{n}", n)
    found: list[str] = []
    cursor = None
    while True:
        fields = {"cursor": cursor} if cursor else {}
        page = namespace_operation(plain, ns, "list_keys", limit=1, **fields)["result"]
        found += [each["identifier"] for each in page["keys"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert sorted(set(found)) == sorted(f"k{n}" for n in range(30))


def test_set_operations_with_sets_that_are_not_there(plain: Raw, ns: str) -> None:
    structure(plain, ns, "set", "add", values=[1, 2])
    structure(plain, ns, "set", "add", "gone", values=[1])
    ask(plain, "delete", key=key(ns, "gone"))
    put(plain, ns, "value", 1)

    def of(operation: str, identifier: str, *others: str) -> Any:
        options = {"other_sets": [f"{ns}:{other}" for other in others]}
        return structure(plain, ns, "set", operation, identifier, options=options)

    for absent in ("never", "gone"):
        assert sorted(of("union", "s", absent)["result"]["values"]) == [1, 2]
        assert of("union", absent, "s")["status"] == "hit"
        assert of("intersection", "s", absent)["result"] == {"values": []}
        assert sorted(of("difference", "s", absent)["result"]["values"]) == [1, 2]
        assert (of("difference", absent, "s")["status"], of("union", absent, absent)["status"]) == ("miss", "miss")
    assert error_of(of("union", "s", "value"))[0] == "CACHE_WRONG_TYPE"


def test_who_waits_for_a_value_waits_no_longer_than_asked(plain: Raw, ns: str, dial: Any) -> None:
    assert ask(plain, "get", key=key(ns), options={"lease_ms": 60_000})["lease"]
    waiting = ask(dial("ws", "json"), "get", key=key(ns), options={"lease_ms": 60_000, "timeout_ms": 50})
    assert error_of(waiting)[0] == "CACHE_TIMEOUT"
    assert waiting["error"]["retryable"] is True
    assert waiting["error"]["state_changed"] is False


def test_an_invalidation_can_be_done_in_parts(plain: Raw, ns: str) -> None:
    for n in range(40):
        put(plain, ns, f"k{n}", n)
    total, cursor, rounds = 0, None, 0
    while True:
        fields = {"cursor": cursor} if cursor else {}
        result = ask(plain, "invalidate", pattern=f"{ns}.*", max_entries=1, **fields)["result"]
        total += result["count"]
        rounds += 1
        if (cursor := result["cursor"]) is None:
            break
    assert total == 40
    assert namespace_operation(plain, ns, "list_keys")["result"]["keys"] == []
    error = ask(plain, "invalidate", pattern=f"{ns}.*", cursor="ffffffff.0.12")
    assert error_of(error)[0] == "CACHE_STALE_CURSOR"


def test_leases_are_renewed_and_released(plain: Raw, ns: str) -> None:
    lease = ask(plain, "get", key=key(ns), options={"lease_ms": 60_000})["lease"]
    assert ask(plain, "renew_lease", key=key(ns), options={"lease": lease, "lease_ms": 90_000})["status"] == "stored"
    assert ask(plain, "release_lease", key=key(ns), options={"lease": lease})["status"] == "deleted"
    assert ask(plain, "release_lease", key=key(ns), options={"lease": lease})["status"] == "miss"
    gone = ask(plain, "renew_lease", key=key(ns), options={"lease": lease})
    assert error_of(gone)[0] == "CACHE_LEASE_LOST"
    assert error_of(ask(plain, "renew_lease", key=key(ns))) == ("CACHE_INVALID", "$.options.lease")
    assert ask(plain, "get", key=key(ns), options={"lease_ms": 60_000})["lease"] != lease
