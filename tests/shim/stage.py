"""Simulated cards, and C programs that use them, with and without the shim."""

import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pliant.devices import cards, config
from pliant.devices.cards import DRIVERS, Card, Cards
from pliant.devices.config import GpuConf, Grant
from tests.house.gaps import gap

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NATIVE = ROOT / "native"
SHIM = DRIVERS.parent / "libpliant-gpu.so"
GIB, MIB = 2**30, 2**20
UUIDS = [f"GPU-00000000-0000-4000-8000-0000000000{index:02x}" for index in range(16)]
OOM = 2  # CUDA_ERROR_OUT_OF_MEMORY


def compiler() -> list[str]:
    """The compiler of the native parts; a gap without one."""
    command = shlex.split(os.environ.get("CC", "cc"))
    if not shutil.which(command[0]):
        gap("no C compiler", "install gcc or clang")
    return command


def compile_c(target: Path, *arguments: str | Path) -> Path:
    """Compiles a program or library from these sources and flags; warnings are errors."""
    flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}"]
    subprocess.run([*compiler(), *flags, "-o", target, *arguments], check=True)
    return target


class Stage:
    """A folder on tmpfs with simulated cards; all processes that it starts use them."""

    def __init__(self, folder: Path, tools: Path) -> None:
        self.folder, self.tools = folder, tools
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PLIANT_SIM_CARDS": str(folder / "cards"),
            "LD_LIBRARY_PATH": str(DRIVERS),
        }

    def cards(self, *totals: int, context: int = 0, virtual_clock: bool = False) -> None:
        """Makes one card of each of these sizes, in bytes."""
        made = [Card(UUIDS[index], "Simulated-GPU", total) for index, total in enumerate(totals)]
        cards.create(self.folder / "cards", made, context=context, virtual_clock=virtual_clock)

    def grant(self, limit: int, name: str = "w", gpu: int = 0, **more: Any) -> dict[str, str]:
        """Gives a workload a share of one card; returns its programs' environment. Again: resizes it."""
        grant = Grant(UUIDS[gpu], limit, **more)
        conf = GpuConf(name, self.folder / f"{name}.ledger", (grant,), time.monotonic_ns())
        config.write(self.conf(name), conf, {UUIDS[gpu]: 1 << 62})
        return {
            "LD_PRELOAD": str(SHIM),
            "PLIANT_GPU_CONF": str(self.conf(name)),
            "PLIANT_SIM_TAG": name,
        }

    def conf(self, name: str = "w") -> Path:
        return self.folder / f"{name}.conf"

    def ledger(self, name: str = "w") -> Path:
        return self.folder / f"{name}.ledger"

    def count(self, gpu: int = 0) -> Card:
        """The card, with its own counters."""
        with closing(Cards(self.folder / "cards")) as reader:
            return reader.cards()[gpu]

    def tag(self, name: str = "w", gpu: int = 0) -> tuple[int, int]:
        """One workload's (bytes now, peak bytes), as the card itself counts them."""
        with closing(Cards(self.folder / "cards")) as reader:
            return reader.tags(gpu)[name]

    def run(self, *command: object, env: dict[str, str] | None = None, check: bool = True) -> str:
        """Runs one program; returns its standard output."""
        done = self.complete(*command, env=env)
        assert not check or done.returncode == 0, (done.returncode, done.stdout, done.stderr)
        return done.stdout

    def complete(
        self, *command: object, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        words = [str(word) for word in command]
        whole = self.env | (env or {})
        return subprocess.run(words, env=whole, capture_output=True, text=True, timeout=200, check=False)

    def start(self, *command: object, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Starts a program whose `ready` lines the test answers; `living` ends it."""
        words = [str(word) for word in command]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            words, env=self.env | (env or {}), stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )

    def probe(self, route: str, *ops: object, env: dict[str, str] | None = None) -> dict[str, list[int]]:
        """Op -> the numbers in its last line."""
        return answers(self.run(*self.command(route, *ops), env=env).splitlines())

    def command(self, route: str, *ops: object) -> list[str]:
        program = "probe-linked" if route == "linked" else "probe"
        return [str(self.tools / program), route, *map(str, ops)]


def answers(lines: Sequence[str]) -> dict[str, list[int]]:
    found = {}
    for line in lines:
        name, *numbers = line.split()
        found[name] = [int(number) for number in numbers]
    return found


def until(process: subprocess.Popen[str], word: str) -> list[str]:
    """The lines up to the first that begins with `word`, inclusive. Fails if the output ends before."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.strip())
        if line.startswith(word):
            return lines
    raise AssertionError(f"no {word!r} in {lines}")


def go_on(process: subprocess.Popen[str]) -> None:
    """Answers one `ready`."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@contextmanager
def living(*processes: subprocess.Popen[str]) -> Iterator[None]:
    """Ends the processes, whatever happens."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


@contextmanager
def on_tmpfs() -> Iterator[Path]:
    """A temporary folder in memory, as on a node; on disk if /dev/shm is not writable."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="pliant-test-", dir=place) as folder:
        yield Path(folder)
