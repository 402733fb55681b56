"""`mpreg doctor`: each thing that a node needs, and what to do about what stands in the way."""

from __future__ import annotations

import json
import resource
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Certificates, make_certificates
from tests.cli.conftest import Mpreg, Said

from mpreg.cli import doctor

FREE = {"MPREG_WS": "0", "MPREG_TCP": "0", "MPREG_STORE": "off"}


def findings(said: Said) -> dict[str, dict[str, Any]]:
    return {finding["what"]: finding for finding in json.loads(said.out)}


def found(mpreg: Mpreg, *args: str, **env: str) -> dict[str, dict[str, Any]]:
    return findings(mpreg("doctor", "--json", *args, **{**FREE, **env}))


def files(certificates: Certificates, **env: str) -> dict[str, str]:
    return {"MPREG_WSS": "0", "MPREG_TLS_CERT": certificates.cert, "MPREG_TLS_KEY": certificates.key, **env}


def test_where_nothing_is_in_the_way_it_says_so(mpreg: Mpreg) -> None:
    said = mpreg("doctor", MPREG_WS="0", MPREG_TCP="0")
    assert (said.code, said.err) == (0, "")
    assert "✗" not in said.out
    for what in ("python", "msgspec", "picows", "settings", "open files", "ws", "tcp", "host", "store", "data dir"):
        assert f"✓ {what}: " in said.out


def test_a_port_in_use_is_a_problem_with_a_way_out(mpreg: Mpreg) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        said = mpreg("doctor", **{**FREE, "MPREG_WS": port})
    assert said.code == 1
    assert f"✗ ws: can't listen on 127.0.0.1:{port}" in said.out
    assert "→ stop what uses the port, or choose another one: --ws PORT" in said.out


def test_a_setting_out_of_range_is_named(mpreg: Mpreg, tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text("connections_max = 0\n")
    said = mpreg("doctor", "--config", "node.toml")
    assert said.code == 1
    assert "node.toml: connections_max: " in said.out
    (tmp_path / "node.toml").write_text("conections_max = 9\n")
    assert "no setting is called 'conections_max'" in mpreg("doctor", "--config", "node.toml").out


def test_tls_files_that_work_are_told_with_the_days_that_are_left(mpreg: Mpreg, tmp_path: Path) -> None:
    tls = found(mpreg, **files(make_certificates(tmp_path, days=100.5)))["tls"]
    assert tls["state"] == "ok"
    assert "100 more days" in tls["says"]


def test_a_certificate_that_runs_out_soon_is_a_warning(mpreg: Mpreg, tmp_path: Path) -> None:
    said = mpreg("doctor", **FREE, **files(make_certificates(tmp_path, days=5)))
    assert said.code == 0
    assert "! tls: " in said.out
    assert "→ renew it" in said.out


@pytest.mark.parametrize("case", ["missing", "expired", "another key", "no file", "no PEM", "no ca"])
def test_tls_files_that_are_no_use_are_a_problem(mpreg: Mpreg, tmp_path: Path, case: str) -> None:
    good = make_certificates(tmp_path)
    env = files(good)
    match case:
        case "missing":
            env = {"MPREG_WSS": "0"}
            says = "needs a certificate"
        case "expired":
            env = files(make_certificates(tmp_path, days=-1))
            says = "expired"
        case "another key":
            (tmp_path / "other").mkdir()
            env["MPREG_TLS_KEY"] = make_certificates(tmp_path / "other").key
            says = "mismatch"
        case "no file":
            env["MPREG_TLS_KEY"] = "none.pem"
            says = "none.pem: No such file"
        case "no PEM":
            Path(good.cert).write_text("hello")
            says = good.cert
        case _:
            env["MPREG_TLS_REQUIRE_CLIENT_CERT"] = "true"
            says = "name the `ca`"
    said = mpreg("doctor", "--json", **FREE, **env)
    tls = findings(said)["tls"]
    assert said.code == 1
    assert tls["state"] == "problem"
    assert says.lower() in tls["says"].lower()
    assert tls["do"]


def test_an_address_that_others_can_reach_is_a_warning(mpreg: Mpreg) -> None:
    assert found(mpreg, MPREG_HOST="0.0.0.0")["host"]["state"] == "warning"


def test_a_store_that_does_not_answer_is_a_problem(mpreg: Mpreg) -> None:
    store = found(mpreg, MPREG_STORE="redis://127.0.0.1:1")["store"]
    assert store["state"] == "problem"
    assert "127.0.0.1:1" in store["says"]


def test_a_data_directory_that_can_not_be_made_is_a_problem(mpreg: Mpreg, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert found(mpreg, MPREG_STORE="embedded:", MPREG_DATA_DIR="file/data")["data dir"]["state"] == "problem"


def test_fewer_open_files_than_connections_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    from mpreg.node import Settings

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 1000))
    finding = doctor._open_files(Settings())
    assert (finding.state, "connections_max to 900" in finding.do) == ("warning", True)
    assert doctor._open_files(Settings(connections_max=500)).state == "ok"


def test_a_package_that_is_too_old_is_a_problem() -> None:
    assert doctor._package("msgspec", "0.1").state == "ok"
    old = doctor._package("msgspec", "99.0")
    assert (old.state, old.do) == ("problem", "pip install 'msgspec>=99.0'")
    assert doctor._package("no-such-package-at-all", "1").says == "is not installed"
