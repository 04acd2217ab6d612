"""Collects the findings of `pliant doctor` about a machine or a cluster, with or without a server."""

import json
import sys
from pathlib import Path

from pliant.api.identity.openid import Relying
from pliant.compiled import COMPILED, CORE
from pliant.control.fractions import Finding
from pliant.control.ports import Devices
from pliant.devices.discovery import find_devices
from pliant.devices.doctor import examine, table
from pliant.devices.place import Place
from pliant.engines.kube.make import OWN, kube_findings
from pliant.engines.local.launch.confinement import writable
from pliant.engines.local.launch.supervisor import command
from pliant.site.openid import read


def findings(state: Path, devices: Devices, confined: bool = False) -> list[Finding]:
    """Which limits of GPU fractions this machine enforces, and which it does not."""
    program, notice = command()
    found = examine(devices, Place(state), notice, writable(program), confined)
    return [Finding("compiled core", COMPILED, CORE), *found]


def examined(state: Path, kube: bool, kubeconfig: Path | None, openid: Path | None) -> int:
    """Prints the findings as JSON; returns the exit code."""
    try:
        if openid is not None:
            found = [Relying(read(openid, rooted=True)).finding()]
        elif kube:
            found = kube_findings(str(kubeconfig or OWN))
        else:
            found = findings(state, find_devices((), "", lambda pid: True).devices)
    except ValueError as error:
        sys.stderr.write(f"pliant: {error}\n")
        return 1
    print(json.dumps(table(found)))
    return 0
