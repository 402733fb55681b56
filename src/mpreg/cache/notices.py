"""A change that publishes: what the note calls cache and pub/sub integration."""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET

from mpreg.cache.conditions import at_path, check_comparison, holds, is_missing
from mpreg.cache.key import CacheKey, invalid
from mpreg.wire.cache import CacheOptions

PUBLISHER: Final = "cache-system"
_TOPIC_BYTES_MAX: Final = 1024
_LEVELS_MAX: Final = 64


def check_notice(options: CacheOptions) -> None:
    """Before anything is changed: whether the notice that is asked for could be given."""
    if not options.notify_on_change:
        return
    if options.notification_topic is not UNSET:
        levels = options.notification_topic.split(".")
        if "" in levels or "*" in levels or "#" in levels or len(levels) > _LEVELS_MAX:
            raise invalid("$.options.notification_topic", "a topic has levels joined by dots, and no wildcard")
        if len(options.notification_topic.encode(errors="replace")) > _TOPIC_BYTES_MAX:
            raise invalid("$.options.notification_topic", f"over {_TOPIC_BYTES_MAX} bytes", limit=_TOPIC_BYTES_MAX)
    condition = options.notification_condition
    if condition is not UNSET:
        if not condition.field_path or "" in condition.field_path.split("."):
            raise invalid("$.options.notification_condition.field_path", "names joined by dots")
        check_comparison(condition.threshold, "$.options.notification_condition.threshold")


def topic_of(key: CacheKey, options: CacheOptions) -> str:
    return f"cache.{key.namespace}.changes" if options.notification_topic is UNSET else options.notification_topic


def notice(
    key: CacheKey, options: CacheOptions, operation: str, old: Any, new: Any, reason: str | None = None
) -> dict[str, Any] | None:
    """The payload; None if the new value does not fulfil the condition."""
    condition = options.notification_condition
    if condition is not UNSET:
        field = at_path(new, condition.field_path)
        if is_missing(field) or not holds(condition.threshold, field):
            return None
    own = {} if options.notification_payload is UNSET else options.notification_payload
    said: dict[str, Any] = {
        **own,
        "cache_key": {"namespace": key.namespace, "identifier": key.identifier, "version": key.version},
        "operation": operation,
        "old_value": old,
        "new_value": new,
    }
    return said if reason is None else {**said, "reason": reason}
