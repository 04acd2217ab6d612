"""Backup, restore and debug bundle of a server that runs."""

import zipfile
from pathlib import Path

from examples.walkthrough import Done, Stage
from tests.e2e.witness import client, statuses, until

SLEEP = "-i ubuntu -g 1 --command -- sleep infinity"


def typed(stage: Stage, command: str) -> Done:
    """Runs a command, which must succeed."""
    done = stage.run(command)
    assert done.code == 0, f"{command}: {done.said}"
    return done


def attempts(stage: Stage) -> dict[str, int]:
    """Workload -> number of its starts."""
    folder = stage.state / "attempts"
    with client(stage) as api:
        return {item["name"]: len(list((folder / item["id"]).glob("*/*/"))) for item in api.workloads()}


def test_restore_while_the_server_runs(stage: Stage, tmp_path: Path) -> None:
    typed(stage, "pliant up --simulate 1x2")
    typed(stage, f"runai submit kept {SLEEP}")
    until(lambda: statuses(stage) == {"kept": "Running"}, "the first job")
    typed(stage, f"pliant backup {tmp_path}/backup")
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
    assert stage.run(f"pliant backup {tmp_path}/backup").code == 5, "no backup is overwritten"
    typed(stage, f"runai submit late {SLEEP}")
    until(lambda: statuses(stage) == {"kept": "Running", "late": "Running"}, "both jobs")

    (tmp_path / "garbage").write_bytes(b"no database" * 1000)
    done = stage.run(f"pliant restore {tmp_path}/garbage --yes")
    assert done.code == 1 and "Nothing was restored" in done.err and "garbage" in done.err
    assert stage.run(f"pliant restore {tmp_path}/backup").code == 5, "it asks first"
    assert statuses(stage) == {"kept": "Running", "late": "Running"}
    assert attempts(stage) == {"kept": 1, "late": 1}, "nothing was stopped for what cannot be restored"

    typed(stage, f"pliant restore {tmp_path}/backup --yes")
    until(lambda: statuses(stage) == {"kept": "Running"}, "what the backup knows, and nothing else")
    assert attempts(stage) == {"kept": 1}, "what the backup knows goes on running"


def test_the_debug_bundle_tells_no_secrets(stage: Stage, tmp_path: Path) -> None:
    typed(stage, "pliant up --simulate 1x2")
    typed(stage, f"runai submit job -e API_KEY=sesame-open {SLEEP}")
    until(lambda: statuses(stage) == {"job": "Running"}, "the job")
    typed(stage, f"pliant debug bundle -O {tmp_path}/bundle.zip")
    assert (tmp_path / "bundle.zip").stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(tmp_path / "bundle.zip") as archive:
        content = {name: archive.read(name).decode() for name in archive.namelist()}
    assert "API_KEY" in content["workloads.json"]
    secrets = ["sesame-open", *((stage.state / name).read_text().strip() for name in ("token", "secret"))]
    for secret in secrets:
        assert not [name for name, text in content.items() if secret in text]
