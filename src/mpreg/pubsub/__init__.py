"""Topics: patterns, who wants what (`exchange`), how it gets there (`delivery`), and what was published lately."""

from mpreg.pubsub.across import Across
from mpreg.pubsub.limits import PubSubLimits
from mpreg.pubsub.outbox import Receiver
from mpreg.pubsub.patterns import Levels, parse_pattern
from mpreg.pubsub.run import Run
from mpreg.pubsub.service import PubSubService
from mpreg.pubsub.subscriber import Handler

__all__ = ["Across", "Handler", "Levels", "PubSubLimits", "PubSubService", "Receiver", "Run", "parse_pattern"]
