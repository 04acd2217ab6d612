"""Simulated machines: `NODESxGPUS[:GPU_MEMORY[:cpu=CORES,memory=BYTES,label=K=V]]`, e.g. `2x2:16G`."""

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from pliant.model.machine import Gpu, Node
from pliant.model.quantity import parse_bytes, parse_cpu

GIB = 2**30
DEFAULT_GPU_MEMORY = 16 * GIB
CPU_PER_GPU = 16_000  # millicores
MEMORY_PER_GPU = 64 * GIB
MODEL = "Simulated-GPU"
MAX_NODES, MAX_GPUS = 20_000, 64
EXAMPLE = "1x2, 2x2:16G, 3x0:0:cpu=3.92,memory=12.3Gi or 1x2:16G:label=run.ai/type=a"

_SHAPE = re.compile(r"(\d{1,6})x(\d{1,6})")
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")
_NAMES = uuid.UUID("6d1f3bd6-2a5c-5b39-8f6b-0c9f3f0f8d11")  # any constant: makes our version-5 UUIDs ours


@dataclass(frozen=True, slots=True)
class Spec:
    """Equal nodes, as one `--simulate` asks for them."""

    nodes: int
    gpus: int  # per node
    gpu_memory: int = DEFAULT_GPU_MEMORY  # bytes of each
    cpu: int = CPU_PER_GPU  # millicores per node
    memory: int = MEMORY_PER_GPU  # bytes per node
    labels: tuple[tuple[str, str], ...] = ()  # sorted by key


def parse(text: str) -> Spec:
    """One `--simulate` value. 16G is 16 GiB here. Raises ValueError: what is wrong, where, and an example."""
    shape, _, rest = text.strip().partition(":")
    memory_text, colon, options = rest.partition(":")
    match = _SHAPE.fullmatch(shape)
    if match is None:
        raise _error(text, f"{shape!r} is not NODESxGPUS")
    nodes, gpus = int(match[1]), int(match[2])
    if not 1 <= nodes <= MAX_NODES:
        raise _error(text, f"{nodes} nodes: must be 1 to {MAX_NODES}")
    if gpus > MAX_GPUS:
        raise _error(text, f"{gpus} GPUs a node: must be 0 to {MAX_GPUS}")
    gpu_memory = DEFAULT_GPU_MEMORY
    if ":" in text:
        gpu_memory = _amount(text, "the GPU memory", memory_text)
        if gpus and not gpu_memory:
            raise _error(text, "a GPU with no memory; 0 is only for nodes without GPUs")
    cpu, memory, labels = None, None, dict[str, str]()
    for option in options.split(",") if colon else ():
        key, equals, value = option.partition("=")
        if key == "cpu" and equals:
            try:
                cpu = parse_cpu(value)
            except ValueError as error:
                raise _error(text, f"cpu: {error}") from None
            if cpu <= 0:
                raise _error(text, "cpu must be above 0")
        elif key == "memory" and equals:
            memory = _amount(text, "memory", value)
            if memory <= 0:
                raise _error(text, "memory must be above 0")
        elif key == "label" and equals:
            name, equals, label = value.partition("=")
            if not (equals and _LABEL.fullmatch(name) and (not label or _LABEL.fullmatch(label))):
                raise _error(text, f"{option!r} is not label=KEY=VALUE")
            labels[name] = label
        else:
            raise _error(text, f"{option!r} is none of cpu=CORES, memory=BYTES, label=KEY=VALUE")
    return Spec(
        nodes,
        gpus,
        gpu_memory if gpus else 0,
        CPU_PER_GPU * max(gpus, 1) if cpu is None else cpu,
        MEMORY_PER_GPU * max(gpus, 1) if memory is None else memory,
        tuple(sorted(labels.items())),
    )


def _amount(text: str, what: str, amount: str) -> int:
    try:
        return parse_bytes(amount, binary=True)
    except ValueError as error:
        raise _error(text, f"{what}: {error}") from None


def _error(text: str, what: str) -> ValueError:
    return ValueError(
        f"--simulate {text}: {what}. Write NODESxGPUS[:GPU_MEMORY[:OPTION,...]], e.g. {EXAMPLE}"
    )


class SimulatedDevices:
    """Nodes sim-0, sim-1, … over all specs; the same specs and cluster give the same names and UUIDs."""

    simulated = True

    def __init__(self, specs: Sequence[str], cluster: str) -> None:
        """`cluster` is its id. Raises ValueError for an invalid spec."""
        self._nodes: list[Node] = []
        for spec in map(parse, specs):
            for _ in range(spec.nodes):
                name = f"sim-{len(self._nodes)}"
                gpus = tuple(
                    Gpu(gpu_uuid(cluster, name, index), index, spec.gpu_memory, MODEL)
                    for index in range(spec.gpus)
                )
                self._nodes.append(Node(name, gpus, spec.cpu, spec.memory, spec.labels, simulated=True))

    def nodes(self) -> Sequence[Node]:
        return self._nodes


def gpu_uuid(cluster: str, node: str, index: int) -> str:
    """In the form CUDA knows: `GPU-` and a UUID."""
    return f"GPU-{uuid.uuid5(_NAMES, f'{cluster}/{node}/{index}')}"
