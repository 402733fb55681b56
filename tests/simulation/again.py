"""One seed again: what each node knows in the end. `python -m tests.simulation.again SEED NODES`."""

from __future__ import annotations

import sys

from tests.simulation.weather import Weather

from mpreg.testing import RuleBroken


def main(seed: int, nodes: int) -> None:
    weather = Weather(seed, nodes)
    try:
        print("agreed after", weather.play())
    except RuleBroken as problem:
        print(problem)
    for process in weather.simulation.processes.values():
        machine = process.machine
        print(f"{process} incarnation {machine.me.incarnation} {machine.me.run_id} digest {machine.digest:016x}")
        for member in machine.members().values():
            about = member.node
            linked = "linked" if member.linked else "no link"
            print(f"    {about.node_id} {about.run_id} incarnation {about.incarnation} {member.state} {linked}")
        for entry in machine.state().values():
            print(f"    {entry.key} version {entry.version} of {entry.source}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
