"""The example of ElasticDL runs as its first lines say, at a small size."""

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pliant.train.elasticdl.source import open_records

pytestmark = pytest.mark.timeout(900)  # real processes: a busy machine is no failure
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ELASTICDL = EXAMPLES / "elasticdl"
BIN = Path(sys.executable).parent


OTHERS = ("PLIANT_", "XDG_", "MAKE", "MFLAGS")  # the last two are set by the make that runs the tests


def shell(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)}
    env |= {"HOME": str(home), "PLIANT_STATE": str(home / "state"), "PATH": f"{BIN}:{env.get('PATH', '')}"}
    return subprocess.run(
        command, shell=True, cwd=ELASTICDL, env=env, capture_output=True, text=True, check=False
    )


def test_the_data_of_the_elasticdl_example_go_where_they_can(tmp_path: Path) -> None:
    wanted, home = tmp_path / "data" / "mnist", tmp_path / "home"
    done = shell(f"make data DATA={wanted} RECORDS=20000", home)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"20000 records are in {wanted}/train, 297 in {wanted}/test\n"
    assert [file.name for file in sorted((wanted / "train").iterdir())] == ["data-00000", "data-00001"]
    assert len(open_records(str(wanted / "train"), "train_data_dir")) == 20000

    done = shell("make data DATA=/proc/mnist RECORDS=100", home)
    own = home / ".local/share/pliant/mnist"
    assert done.returncode == 0
    assert done.stderr.startswith("/proc/mnist cannot be written: ")
    assert done.stdout == f"100 records are in {own}/train, 297 in {own}/test\n"


def test_the_client_of_the_elasticdl_example_says_where_the_data_are(tmp_path: Path) -> None:
    own = tmp_path / ".local/share/pliant/mnist"
    (own / "train").mkdir(parents=True)
    client = ELASTICDL / "elasticdl/python/elasticdl/client/client.py"
    found: dict[str, Any] = runpy.run_path(str(client))
    mapped = found["mapped"]
    mapped.__globals__.update(MOUNT=str(tmp_path / "none"), FOLDER=own)
    assert mapped(f"--train_data_dir={tmp_path}/none/train") == f"--train_data_dir={own}/train"
    assert mapped(f"{tmp_path}/none/train") == f"{own}/train"
    for same in ("--job_name=a", f"--train_data_dir={tmp_path}", f"--train_data_dir={tmp_path}/none/test"):
        assert mapped(same) == same

    model = "--model_file=elasticdl/python/examples/mnist_functional_api.py"
    said = shell(f"python {client} --job_name=x {model} --train_data_dir=digits:20 --num_worker=0", tmp_path)
    assert said.returncode == 2 and "--num_workers 0" in said.stderr, "it is the program elasticdl"


@pytest.mark.timeout(900)
def test_the_elasticdl_example_runs_without_a_scheduler(tmp_path: Path) -> None:
    flags = "--num_workers=1 --minibatch_size=10 --grads_to_wait=2 --train_data_dir=digits:2000"
    model = "--model_file=elasticdl/python/examples/mnist_functional_api.py --validation_data_dir=digits:test"
    done = shell(f"python -m pliant.train.elasticdl local {flags} {model} --output={tmp_path}/out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "step 100: evaluated, accuracy 0." in done.stdout
    assert "job: done, 100 steps, loss 0." in done.stdout
    assert (tmp_path / "out" / "state.safetensors").is_file()
