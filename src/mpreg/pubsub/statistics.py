"""What the exchange counts, named as in the note's `topic_exchange`."""

from __future__ import annotations

from typing import Any


class PubSubStatistics:
    def __init__(self) -> None:
        self.messages_published = 0
        self.messages_delivered = 0
        """Handed to a subscriber's link or to a handler, once for each subscription."""
        self.messages_dropped = 0
        """Left out for a subscriber that does not keep up, or that was disconnected for it."""
        self.duplicates = 0
        """Published before by the same publisher, so not again."""
        self.slow_disconnects = 0
        self.messages_forwarded = 0
        """Sent to another node of the cluster, once for each node."""
        self.messages_dropped_between_nodes = 0
        """Left out for a node that does not keep up."""

    def report(self) -> dict[str, Any]:
        """`delivery_ratio` is the share of what was to be delivered that was not dropped."""
        wanted = self.messages_delivered + self.messages_dropped
        return {
            "messages_published": self.messages_published,
            "messages_delivered": self.messages_delivered,
            "messages_dropped": self.messages_dropped,
            "duplicates": self.duplicates,
            "slow_disconnects": self.slow_disconnects,
            "delivery_ratio": round(self.messages_delivered / wanted, 4) if wanted else 1.0,
        }
