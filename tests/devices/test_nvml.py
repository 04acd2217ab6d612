"""The NVML devices, on a fake driver, and on a real one if there is one."""

from types import SimpleNamespace

import pytest

from pliant.control.ports import GpuLoad
from pliant.devices.nvml import NvmlDevices
from tests.house.gaps import gap

GIB = 2**30


class Failure(Exception):
    pass


class Driver:
    """What NvmlDevices uses of pynvml."""

    NVMLError = Failure
    nvmlMemory_v2 = 2

    def __init__(self, gpus=2, *, loads=True, old=False):
        self.count, self.loads, self.old = gpus, loads, old
        self.running = {index: [] for index in range(gpus)}
        self.dead = False

    def nvmlInit(self):
        if not self.loads:
            raise Failure("NVML Shared Library Not Found")

    def nvmlDeviceGetCount(self):
        if self.dead:
            raise Failure("GPU is lost")
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetUUID(self, handle):
        return f"GPU-{handle}".encode() if self.old else f"GPU-{handle}"

    def nvmlDeviceGetName(self, handle):
        return "NVIDIA Test"

    def nvmlDeviceGetMemoryInfo(self, handle, version=None):
        if version is None:
            return SimpleNamespace(total=16 * GIB)
        if self.old:
            raise Failure("Not Supported")
        return SimpleNamespace(total=16 * GIB, reserved=GIB)

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        if self.running[handle] is None:
            raise Failure("Not Supported")
        return [SimpleNamespace(pid=pid, usedGpuMemory=pid * GIB or None) for pid in self.running[handle]]

    def nvmlDeviceGetUtilizationRates(self, handle):
        return SimpleNamespace(gpu=30 + handle, memory=1)

    def nvmlSystemGetDriverVersion(self):
        return "580.1"

    def nvmlSystemGetCudaDriverVersion_v2(self):
        return 13010


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:       1024 kB\nMemFree: 1 kB\n")
    for pid in (10, 20):
        (tmp_path / str(pid)).mkdir()
    return tmp_path


def devices(driver, proc, **options):
    return NvmlDevices(lambda pid: pid == 10, nvml=driver, proc=proc, **options)


def test_one_node_with_the_machine_s_gpus(proc):
    (node,) = devices(Driver(), proc, name="box", labels=[("run.ai/type", "a")]).nodes()
    assert node.name == "box" and node.label("run.ai/type") == "a" and not node.simulated
    assert [(gpu.uuid, gpu.index, gpu.memory, gpu.model, gpu.foreign) for gpu in node.gpus] == [
        ("GPU-0", 0, 15 * GIB, "NVIDIA Test", False),
        ("GPU-1", 1, 15 * GIB, "NVIDIA Test", False),
    ]
    assert node.memory == 2**20 and node.cpu >= 1000


def test_an_old_driver_has_bytes_for_names_and_nothing_reserved(proc):
    (node,) = devices(Driver(old=True), proc).nodes()
    assert (node.gpus[1].uuid, node.gpus[1].memory) == ("GPU-1", 16 * GIB)
    assert node.name


def test_a_gpu_that_others_use_is_foreign_until_they_end(proc):
    driver = Driver()
    made = devices(driver, proc)
    driver.running = {0: [10], 1: [10, 20]}
    assert [gpu.foreign for gpu in made.nodes()[0].gpus] == [False, True]
    driver.running = {0: [10], 1: [10]}
    assert [gpu.foreign for gpu in made.nodes()[0].gpus] == [False, False]
    driver.running[0] = None
    assert [gpu.foreign for gpu in made.nodes()[0].gpus] == [False, False]


def test_a_process_that_nobody_sees_is_foreign_only_if_it_stays(proc):
    driver = Driver()
    made = devices(driver, proc)
    driver.running[0] = [99]
    assert not made.nodes()[0].gpus[0].foreign, "it may just have ended"
    assert made.nodes()[0].gpus[0].foreign
    driver.running[0] = []
    assert not made.nodes()[0].gpus[0].foreign
    driver.running[0] = [99]
    assert not made.nodes()[0].gpus[0].foreign


@pytest.mark.parametrize(
    ("driver", "reason"),
    [
        (Driver(loads=False), "no NVIDIA driver here (NVML Shared Library Not Found)"),
        (Driver(gpus=0), "the NVIDIA driver sees no GPU"),
    ],
)
def test_without_gpus_there_is_a_reason(proc, driver, reason):
    made = devices(driver, proc)
    assert made.nodes() == () and made.reason == reason


def test_a_driver_that_dies_takes_the_node_with_it_until_it_answers_again(proc):
    driver = Driver()
    made = devices(driver, proc)
    assert len(made.nodes()) == 1
    driver.dead = True
    assert made.nodes() == ()
    assert made.reason == "the NVIDIA driver does not answer: GPU is lost"
    driver.dead = False
    assert len(made.nodes()) == 1 and not made.reason


def test_the_real_library():
    """It reports what this machine has, GPUs or none."""
    made = NvmlDevices(lambda pid: True)
    nodes = made.nodes()
    assert bool(nodes) != bool(made.reason)


@pytest.mark.gpu
def test_a_real_gpu():
    made = NvmlDevices(lambda pid: True)
    if made.reason:
        gap("no GPU", "run on a machine with an NVIDIA GPU and its driver")
    (gpu, *_) = made.nodes()[0].gpus
    assert gpu.uuid.startswith("GPU-") and gpu.memory > GIB and gpu.model and not gpu.foreign


def test_who_uses_how_much_of_which_gpu(proc):
    driver = Driver()
    machine = devices(driver, proc)
    driver.running = {0: [10, 20], 1: []}
    assert machine.processes() == {"GPU-0": {10: 10 * GIB, 20: 20 * GIB}, "GPU-1": {}}
    assert machine.loads() == {"GPU-0": GpuLoad(30, 30 * GIB), "GPU-1": GpuLoad(31, 0)}
    assert machine.version() == "580.1, CUDA 13.1"
    driver.running[0] = None  # this card does not tell
    assert machine.processes() == {"GPU-1": {}}
    assert machine.loads() == {"GPU-1": GpuLoad(31, 0)}
    assert devices(Driver(loads=False), proc).processes() == {}
    assert devices(Driver(loads=False), proc).loads() == {}
