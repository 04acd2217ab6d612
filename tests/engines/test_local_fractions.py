"""The environment of a task with a share of a simulated GPU, and what the node sees of the task."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pliant.control.fractions import How
from pliant.control.state.retries import describe_exit
from pliant.control.submit.variables import Variables
from pliant.devices import ledger
from pliant.devices.cards import DRIVERS
from pliant.devices.handout import SHIM, Handout, _mapping
from pliant.devices.observer import Observer
from pliant.devices.place import Place
from pliant.engines.local.folder.layout import Layout
from pliant.engines.local.observe.processes import owner_of
from pliant.model.fact import AttemptResized
from pliant.model.machine import Placement, Share
from pliant.model.order import Resize, Start
from pliant.model.workload import Attempt, AttemptId, Launch, Request
from tests.engines.contract import GIB, GPUS, NODE, A, B, place, workload
from tests.engines.local_rig import PYTHON_SUPERVISOR, LocalRig, until
from tests.house.gaps import gap

SIMULATED = replace(NODE, simulated=True)
HALF = place(0, portion=500)
SHOWS = """
import pynvml as n; n.nvmlInit()
for i in range(n.nvmlDeviceGetCount()):
    print(n.nvmlDeviceGetUUID(h := n.nvmlDeviceGetHandleByIndex(i)), n.nvmlDeviceGetMemoryInfo(h).total)
"""
TAKES = """
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
context, at = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
def alloc(n): return cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(n))
"""
HOLDS = TAKES + "print(alloc(int(sys.argv[1]) << 20), flush=True); time.sleep(1000)"


class Remembering(Observer):
    """Keeps all looks, so that a slow test does not miss what is wrong in one look only."""

    looks: list[dict]

    def __setattr__(self, name, value):
        if name == "uses":
            self.looks.append(value)
        super().__setattr__(name, value)


class FractionRig(LocalRig):
    """A LocalRig whose node has simulated cards."""

    def __init__(self, folder, program=None, **options):
        if not (SHIM.exists() and DRIVERS.exists()):
            gap("no native parts", "make native")
        super().__init__(folder, program)
        self.machine.listed = [SIMULATED]
        self.told: list[tuple[AttemptId, str]] = []
        self.how = options

    def make(self):
        layout = Layout(self.state)
        self.place = Place(layout.state, {})
        self.fractions = Handout(
            self.place,
            owner=lambda pid: owner_of(layout, pid),
            report=lambda attempt, text: self.told.append((attempt, text)),
            **self.how,
        )
        self.fractions.observer.__class__ = Remembering
        self.fractions.observer.looks = self.looks = []
        self.options["fractions"] = self.fractions
        return super().make()

    def give(self, attempt, launch, placement=HALF, request=None, variables=None):
        """Starts it with that share; by default with a request for half a GPU."""
        if variables is not None:
            launch = replace(launch, variables=tuple(name for name, _ in variables.given))
            self.engine.seal(attempt.workload, {"": variables})
        row = workload(attempt.workload, launch)
        group = replace(row.groups[0], request=request or Request(1, placement.shares[0].portion))
        order = Start(attempt, placement, replace(row, groups=(group,)), "d", 1)
        self.known[attempt] = Attempt(attempt, placement, 1, "d", 0)
        self.engine.start(order)

    def python(self, attempt, code, *words, placement=HALF, request=None, variables=None):
        command = (sys.executable, "-c", code, *map(str, words))
        self.give(attempt, Launch("ubuntu", command), placement, request, variables)

    def said(self, attempt, word):
        until(lambda: word in self.log(attempt), f"{attempt} says {word}")
        return self.log(attempt)

    def use(self, attempt, condition=lambda use: True):
        """The newest use of it for which the condition holds, not older than the one returned before."""

        def there():
            for number in reversed(range(len(self.looks))):
                use = self.looks[number].get(attempt)
                if use is not None and condition(use):
                    del self.looks[:number]
                    return use
            return None

        return until(there, f"the node sees {attempt}")

    def clean(self):
        super().clean()
        shutil.rmtree(self.place.root, ignore_errors=True)


@pytest.fixture
def rig(tmp_path):
    rig = FractionRig(tmp_path)
    rig.open()
    yield rig
    rig.clean()


def order_of(rig, attempt=A):
    return json.loads((rig.folder(attempt) / "order.json").read_text())


def environment_of(rig, attempt=A):
    return json.loads((rig.state / "sealed" / attempt.workload / f"{attempt.task}.1").read_text())


def test_a_half_sees_half_and_the_card_nothing_else(rig):
    rig.python(A, SHOWS)
    assert rig.end(A).succeeded
    assert rig.log(A) == f"{GPUS[0].uuid} {8 * GIB}\n"
    assert order_of(rig)["enforcement"]["how"] == How.SHIM.value


def test_an_exact_amount_is_exact_and_whole_cards_are_the_tasks_alone(rig):
    memory = 5 * 10**9
    five = Placement(NODE.name, (Share(GPUS[2].uuid, 292, memory),))
    rig.python(A, SHOWS, placement=five, request=Request(1, gpu_memory=memory))
    rig.python(B, SHOWS, placement=place(1, 3), request=Request(2))
    assert rig.end(A).succeeded and rig.end(B).succeeded
    assert rig.log(A) == f"{GPUS[2].uuid} {memory}\n"
    assert rig.log(B) == "".join(f"{GPUS[index].uuid} {16 * GIB}\n" for index in (1, 3))


def test_the_node_sees_what_is_used_and_nothing_stays_behind(rig):
    rig.python(A, HOLDS, 512)
    use = rig.use(A, lambda use: use.parts[0].used)
    assert (use.parts[0].used, use.parts[0].limit, use.parts[0].processes) == (512 << 20, 8 * GIB, 1)
    until(lambda: rig.fractions.uses() == {A: use}, "who asks is told the same")
    ledgers = rig.place.present("ledgers")
    assert len(ledgers) == 1
    rig.stop(A)
    assert rig.end(A).stopped
    assert rig.place.present("ledgers") == [] and A not in rig.fractions._living()
    rig.engine.close()
    assert rig.place.present("tools") == [], "the folder in memory goes with its server"


def test_a_preload_of_ones_own_and_commands_inside_stay(rig, tmp_path):
    own = Variables((("LD_PRELOAD", "libm.so.6"), ("PATH", "/bin")))
    rig.python(A, "import time; time.sleep(1000)", variables=own)
    assert rig.until(lambda: rig.started(A), "it runs") is None
    env = environment_of(rig)
    assert env["LD_PRELOAD"] == f"{SHIM}:libm.so.6" and ":/bin:" in env["PATH"]
    session = rig.engine.exec(A, ["nvidia-smi", "-L"], tty=False, stdin=False, rows=24, columns=80)
    out = b""
    while (piece := session.read(5)) != b"":
        out += piece or b""
    assert out.decode() == f"GPU 0:  (UUID: {GPUS[0].uuid})\n"
    script = "touch $(dirname $PLIANT_GPU_CONF)/x"
    for tty in (False, True):
        session = rig.engine.exec(A, ["sh", "-c", script], tty=tty, stdin=tty, rows=24, columns=80)
        while session.read(5) != b"":
            continue
        assert (session.exit_code() != 0) == bool(order_of(rig)["read_only"])
    session = rig.engine.exec(A, ["no-such-command"], tty=False, stdin=False, rows=24, columns=80)
    while session.read(5) != b"":
        continue
    assert session.exit_code() == 127


def test_without_a_compiler_it_says_so(tmp_path):
    rig = FractionRig(tmp_path, shim=tmp_path / "no.so")
    rig.open()
    try:
        rig.python(A, SHOWS)
        assert rig.end(A).succeeded
        assert rig.log(A).count(f"{16 * GIB}") == len(GPUS), "the whole machine"
        said = order_of(rig)["enforcement"]
        assert said["how"] == How.SCHEDULED.value and "install a C compiler" in said["why"]
    finally:
        rig.clean()


def test_where_the_file_cannot_be_kept_from_it_the_hold_is_cooperative(tmp_path):
    rig = FractionRig(tmp_path, PYTHON_SUPERVISOR)
    rig.open()
    try:
        rig.python(
            A, "import os, time; open(os.environ['PLIANT_GPU_CONF'], 'a').write('x'); time.sleep(1000)"
        )
        use = rig.use(A, lambda use: use.trouble)
        assert (
            use.enforcement.how is How.COOPERATIVE
            and "native supervisor was not built" in use.enforcement.why
        )
        assert use.trouble == "its gpu.conf was changed by somebody and was put back"
        assert rig.told == [(A, use.trouble)]
        rig.use(A, lambda use: not use.trouble)
    finally:
        rig.clean()


@pytest.mark.parametrize(
    ("change", "word"),
    [(lambda path: path.unlink(), "taken away"), (lambda path: path.write_text("pliant-gpu 1\n"), "changed")],
)
def test_limits_that_were_tampered_with_are_put_back(rig, change, word):
    rig.python(A, HOLDS, 64)
    rig.use(A, lambda use: use.parts[0].used)
    path = rig.folder(A) / "gpu" / "gpu.conf"
    before = path.read_text()
    change(path)
    said = rig.use(A, lambda use: use.trouble).trouble
    assert said == f"its gpu.conf was {word} by somebody and was put back"
    assert path.read_text() == before and rig.told == [(A, said)]


def test_the_next_server_goes_on_watching(rig):
    rig.python(A, HOLDS, 256)
    rig.use(A, lambda use: use.parts[0].used)
    rig.drop()
    rig.open()
    use = rig.use(A, lambda use: use.parts[0].used)
    assert (use.parts[0].used, use.enforcement.how.value) == (256 << 20, order_of(rig)["enforcement"]["how"])


def test_who_goes_around_the_shim_is_found(rig):
    code = "import os, sys; env = dict(os.environ); del env['LD_PRELOAD'], env['PLIANT_ATTEMPT']\n"
    code += f"os.execve(sys.executable, [sys.executable, '-c', {HOLDS!r}, '9000'], env)"
    rig.python(A, code)
    assert rig.said(A, "0\n") == "0\n", "nobody stopped it"
    use = rig.use(A, lambda use: "8.7Gi" in use.trouble or "9000" in use.trouble)
    assert f"of {GPUS[0].uuid} outside of its share: it runs without the shim" in use.trouble
    assert rig.told[-1] == (A, use.trouble)


def test_a_process_that_is_no_tasks_is_named_to_all_who_share(rig):
    rig.python(A, HOLDS, 64)
    rig.python(B, HOLDS, 64, placement=place(0, portion=250))
    rig.use(A, lambda use: use.parts[0].used)
    env = {key: environment_of(rig)[key] for key in ("PLIANT_SIM_CARDS", "LD_LIBRARY_PATH")}
    program = subprocess.Popen([sys.executable, "-c", HOLDS, "9000"], env=env, stdout=subprocess.DEVNULL)
    try:
        for attempt in (A, B):
            said = rig.use(attempt, lambda use: use.trouble).trouble
            assert said.startswith(f"process {program.pid} (") and "all shares: it is no task's" in said
    finally:
        program.kill()
        program.wait()
    rig.use(A, lambda use: not use.trouble)  # ended processes are not reported


@pytest.mark.parametrize(
    ("share", "why"),
    [
        (Share(GPUS[0].uuid, 500, 0), "a limit of 0 bytes; must be above 0"),
        (Share(GPUS[0].uuid, 500, -4 * GIB), "must be above 0"),
        (Share(GPUS[0].uuid, 500, 17 * GIB), f"the GPU has {16 * GIB} to share"),
        (Share("GPU-10000000-0000-0000-0000-000000000000", 500, GIB), "n0 has no such GPU"),
    ],
)
def test_a_share_that_makes_no_sense_is_not_started(rig, share, why):
    rig.python(A, SHOWS, placement=Placement(NODE.name, (share,)), request=Request(1, 500))
    end = rig.end(A)
    assert why in end.error and not end.succeeded


def test_a_place_that_is_open_to_others_is_not_used(rig, tmp_path):
    Place(rig.state, {}).root.chmod(0o755)
    rig.python(A, SHOWS)
    assert f"is open to others: chmod 700 {rig.place.chosen}" in rig.end(A).error


def test_a_full_place_is_said(rig, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    rig.place.folder("ledgers")
    monkeypatch.setattr(os, "posix_fallocate", full)
    rig.python(A, SHOWS)
    assert "no ledger for its share of a GPU in" in (error := rig.end(A).error)
    assert error.endswith("ledgers: No space left on device")
    assert rig.place.present("ledgers") == []


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.write_bytes(b"x" * 300_000), "is not one of this version"),
        (lambda path: os.truncate(path, 100), "is cut short"),
        (lambda path: (path.unlink(), path.mkdir()), "cannot be opened for writing"),
        (lambda path: (path.unlink(), ledger.create(path, "other")), "belongs to another workload"),
    ],
)
def test_a_ledger_that_is_none_gives_nothing_and_the_reason_says_so(rig, damage, said):
    pipe = rig.state / "ask"
    os.mkfifo(pipe)
    rig.python(A, f"open({str(pipe)!r}).read()\n" + TAKES)
    rig.use(A)
    damage(rig.place.present("ledgers")[0])
    assert rig.use(A, lambda use: use.trouble).trouble
    pipe.write_text("go on")
    end = rig.end(A)
    assert end.code == 1 and end.note.startswith("no GPU memory for this program: the ledger")
    assert said in end.note and end.note in describe_exit(end)


@pytest.mark.parametrize(("to", "fits"), [(4 * GIB, True), (GIB, False)])
def test_a_running_program_is_resized(rig, to, fits):
    code = TAKES + "print(alloc(2 << 30), flush=True); free, total = ctypes.c_size_t(), ctypes.c_size_t()\n"
    code += "for line in open(sys.argv[1]): cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)); "
    code += "print(total.value, alloc(3 << 30), flush=True)"
    pipe = rig.state / "ask"
    os.mkfifo(pipe)
    rig.python(A, code, pipe)
    rig.said(A, "0\n")
    small = Placement(NODE.name, (Share(GPUS[0].uuid, to // (16 * GIB // 1000), to),), 1000, GIB)
    grace = 30_000 if fits else 300
    rig.engine.resize(Resize(A, small, grace, "d", 1))
    if not fits:
        assert rig.end(A).stopped, "it never came down to what its owner wants back"
        return
    until(lambda: AttemptResized in map(type, rig.facts), "it has come down")
    with pipe.open("w", buffering=1) as ask:
        ask.write("\n")
        rig.said(A, f"{4 * GIB} 2\n")
        big = Placement(NODE.name, (Share(GPUS[0].uuid, 750, 12 * GIB),), 1000, GIB)
        rig.engine.resize(Resize(A, big, grace, "d", 1))
        until(lambda: rig.use(A).parts[0].limit == 12 * GIB, "it may have more")
        ask.write("\n")
        rig.said(A, f"{12 * GIB} 0\n")


ASKS = (
    TAKES
    + """
print(alloc(int(sys.argv[2]) << 30), flush=True)
free, total = ctypes.c_size_t(), ctypes.c_size_t()
for line in open(sys.argv[1]):
    cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    print("sees", total.value >> 30, flush=True)
"""
)
QUARTER = place(0, portion=250)
DYNAMIC = Request(1, 250, portion_limit=1000)


def test_memory_that_nobody_asked_for_is_lent_and_comes_back(rig):
    pipe = rig.state / "ask"
    os.mkfifo(pipe)
    rig.python(A, ASKS, pipe, 6, placement=QUARTER, request=DYNAMIC)
    rig.said(A, "0\n")
    with pipe.open("w", buffering=1) as ask:
        ask.write("\n")
        rig.said(A, "sees 16\n")
        rig.python(B, HOLDS, 8000)
        rig.said(B, "0\n")  # as its owner asked
        ask.write("\n")
        rig.said(A, "sees 8\n")
        rig.stop(B)
        assert rig.end(B).stopped
        rig.use(A, lambda use: use.parts[0].limit == 16 * GIB)
        assert rig.use(A).parts[0].request == 4 * GIB
    assert rig.end(A).succeeded and not rig.told


def test_who_keeps_what_was_lent_makes_way(tmp_path):
    rig = FractionRig(tmp_path, lent_seconds=0.3)
    rig.open()
    try:
        rig.python(A, HOLDS, 12_000, placement=QUARTER, request=DYNAMIC)
        rig.said(A, "0\n")
        rig.python(B, HOLDS, 8000)
        assert rig.end(A).stopped
        rig.said(B, "0\n")
        assert rig.told == [(A, "it keeps memory that was lent to it and that name-w-b was given")]
    finally:
        rig.clean()


def test_a_share_is_free_once_nobody_holds_it(rig):
    """A process with no environment or parent to identify it is ended, because it maps the ledger."""
    code = "import os, sys, time\nif os.fork(): time.sleep(1000)\nos.setsid(); env = {k: v for k, v in "
    code += "os.environ.items() if k not in ('PLIANT_ATTEMPT', 'PLIANT_ATTEMPT_DIR')}\n"
    code += f"os.execve(sys.executable, [sys.executable, '-c', {HOLDS!r}, '100'], env)"
    rig.python(A, code)
    use = rig.use(A, lambda use: use.parts[0].used)
    assert use.parts[0].used == 100 << 20
    os.kill(rig.supervisor_of(A), signal.SIGKILL)
    assert rig.end(A).lost
    assert rig.place.present("ledgers") == []
    assert not [
        pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _maps(pid, rig.place.root)
    ]


def test_who_maps_the_ledger_of_the_tenth_attempt_does_not_map_that_of_the_first(tmp_path):
    folder = tmp_path / "a folder"
    folder.mkdir()
    first, tenth = folder / "w.worker-0.1", folder / "w.worker-0.10"
    for path in (first, tenth):
        path.write_bytes(b"x")
    code = "import mmap, sys\nfile = open(sys.argv[1], 'r+b')\nheld = mmap.mmap(file.fileno(), 1)\n"
    code += "print(flush=True)\ninput()"
    words = [sys.executable, "-c", code, str(tenth)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        assert (_mapping(first), _mapping(tenth)) == ([], [holder.pid])
        tenth.unlink()
        assert _mapping(tenth) == [holder.pid], "it holds the share also if its ledger has no name any more"
        holder.communicate(b"\n", timeout=60)


def _maps(pid, root):
    try:
        return f"{root}/ledgers" in Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return False


def test_of_an_ended_task_the_node_remembers_nothing(rig):
    rig.python(A, HOLDS, 100)
    rig.use(A, lambda use: use.parts[0].used)
    rig.stop(A)
    rig.end(A)
    rig.fractions.observer.look()
    assert (rig.fractions.observer._before, rig.fractions.observer._told) == ({}, {})
