"""Functions: who offers them, in what order the commands of a request run, where, and how each is answered."""

from mpreg.deadlines import Deadline, Deadlines
from mpreg.rpc.cluster_placement import ClusterPlacement
from mpreg.rpc.execution import LocalFunction
from mpreg.rpc.placement import LocalPlacement, Placement, Provider
from mpreg.rpc.registry import Function, Registry
from mpreg.rpc.remote import RemoteCalls
from mpreg.rpc.service import RpcLimits, RpcService
from mpreg.rpc.threads import Threads

__all__ = [
    "ClusterPlacement",
    "Deadline",
    "Deadlines",
    "Function",
    "LocalFunction",
    "LocalPlacement",
    "Placement",
    "Provider",
    "Registry",
    "RemoteCalls",
    "RpcLimits",
    "RpcService",
    "Threads",
]
