"""The guide of mpreg.testing is run as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.node.processes import ENVIRONMENT

from mpreg.testing import Nodes

GUIDE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_test_of_real_nodes_passes(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(PROGRAMS[0])
    assert "1 passed" in run(tmp_path, "-m", "pytest", "-p", "no:cacheprovider", "test_orders.py")


def test_the_simulation_of_membership_comes_to_agreement(tmp_path: Path) -> None:
    (tmp_path / "weather.py").write_text(PROGRAMS[1])
    assert re.fullmatch(r"all agree after \d+ s; deaths of the living: \d+\n", run(tmp_path, "weather.py"))


def test_the_table_names_only_what_there_is() -> None:
    rows = re.findall(r"^\| `(.*)` \| ", GUIDE, re.MULTILINE)
    names = {re.sub(r"^await ", "", part).split("(")[0].split(" ")[0] for row in rows for part in row.split("`, `")}
    assert len(names) > 12
    assert names <= {name for name in dir(Nodes) if not name.startswith("_")}
