"""The nodes of one cluster: who is there, what they share, and the news between them.

`Machine` decides; the shell around it moves bytes and keeps links.
"""

from mpreg.cluster.machine import Machine, Member
from mpreg.cluster.settings import LAN, LOCAL, PRESETS, WAN, ClusterSettings

__all__ = ["LAN", "LOCAL", "PRESETS", "WAN", "ClusterSettings", "Machine", "Member"]
