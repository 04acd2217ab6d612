"""What doctor reports about a machine; every `no` has its reason."""

from pathlib import Path

import pytest

from pliant.devices import doctor
from pliant.devices.handout import SHIM
from pliant.devices.place import Place
from pliant.devices.simulated import SimulatedDevices


def found(tmp_path: Path, supervisor: str = "", writable: str = "") -> dict[str, tuple[bool, str]]:
    devices = SimulatedDevices(["1x2"], "c")
    rows = doctor.examine(devices, Place(tmp_path, {"XDG_RUNTIME_DIR": str(tmp_path)}), supervisor, writable)
    assert all(row.text for row in rows)
    return {row.what: (row.holds, row.text) for row in rows}


def test_what_holds_is_said(tmp_path: Path) -> None:
    said = found(tmp_path)
    assert said["GPUs"] == (True, "2 simulated, by --simulate or because no GPU was found")
    if SHIM.exists():
        assert said["memory limits"] == (True, "enforced by shim")
        assert "loads with glibc" in said["shim"][1]
    assert said["wholly enforced"][0] is False and "go around a preload" in said["wholly enforced"][1]
    assert str(tmp_path) in said["place in memory"][1]
    assert not list(tmp_path.iterdir()), "looking leaves nothing"


def test_what_does_not_has_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(tmp_path, writable="no namespaces")["memory limits"][1] in (
        "cooperative: no namespaces",
        found(tmp_path)["memory limits"][1],
    )
    monkeypatch.setattr(doctor, "SHIM", tmp_path / "none.so")
    said = found(tmp_path, supervisor="no compiler")
    assert said["supervisor"] == (False, "no compiler")
    assert said["memory limits"][0] is False and "install a C compiler" in said["memory limits"][1]
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(doctor, "SHIM", broken)
    assert "does not load here" in found(tmp_path)["shim"][1]
