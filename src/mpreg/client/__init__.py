"""The Python client: `connect` to one node or several, `call` functions, `request` several that use each other."""

from mpreg.client.client import Client
from mpreg.client.commands import CommandBuilder, command
from mpreg.client.connecting import connect
from mpreg.client.queue import Queue
from mpreg.client.queue_message import Message
from mpreg.client.queue_sending import Receipt
from mpreg.client.retry import RetryPolicy
from mpreg.client.settings import ClientSettings
from mpreg.client.subscription import Subscription

__all__ = [
    "Client",
    "ClientSettings",
    "CommandBuilder",
    "Message",
    "Queue",
    "Receipt",
    "RetryPolicy",
    "Subscription",
    "command",
    "connect",
]
