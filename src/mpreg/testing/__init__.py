"""For tests of programs that use MPREG, and of MPREG itself: clusters in virtual time, with faults."""

from mpreg.testing.conditions import AWFUL, BAD, GOOD, Conditions
from mpreg.testing.nodes import Nodes, simulate
from mpreg.testing.process import Process
from mpreg.testing.rules import RuleBroken
from mpreg.testing.simulation import Simulation

__all__ = ["AWFUL", "BAD", "GOOD", "Conditions", "Nodes", "Process", "RuleBroken", "Simulation", "simulate"]
