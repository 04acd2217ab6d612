"""The process group that DistributedDataParallel keeps, whose inside each generation replaces.

Measured with Gloo: when a peer dies, only its neighbours notice; the others wait in the collective until the
timeout. abort() and shutdown() do not free them, and dropping the group from another thread waits for them.
Shutting down the group's sockets frees them within milliseconds, so each generation keeps a list of its own.
"""

import base64
import contextlib
import os
import socket
import threading
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from pliant.train.errors import BadSettings, GenerationOver, MasterAway, Refused
from pliant.train.master.calls import MasterClient

BUILD_S = 30.0  # last resort: how long to wait for a value that no worker has sent
COLLECTIVE_S = 60.0  # last resort, if neither a closed socket nor the master shows that a peer is gone


class MasterStore(dist.Store):  # type: ignore[misc]  # torch is not read by the type checker
    """The store for the peers' addresses in one generation: kept by the master, authenticated by the token.

    Each request also sends this rank's own values, and so does registering with a restarted master. So that
    master learns them again, also from a rank that has all it needs and sends no more requests.
    """

    def __init__(self, client: MasterClient, worker: str, generation: int, size: int) -> None:
        super().__init__()
        self._client = client
        self._who = {"worker": worker, "generation": generation}
        self._size = size
        self.together = True  # ask for the values of all ranks at once
        self._mine: dict[str, str] = {}
        self._found: dict[str, bytes] = {}

    def told(self) -> dict[str, str]:
        """What this rank has told its peers so far. From any thread."""
        return self._mine

    def set(self, key: str, value: Any) -> None:
        data = value.encode() if isinstance(value, str) else bytes(value)
        self._mine = {**self._mine, key: base64.b64encode(data).decode()}  # never changed in place: see told
        self._found[key] = data
        if not self.together:
            self._ask([])

    def get(self, key: str) -> bytes:
        if key not in self._found:
            stem, slash, last = key.rpartition("/")
            every = [f"{stem}/{rank}" for rank in range(self._size)]
            self._ask(every if self.together and slash and last.isdigit() else [key])
        return self._found[key]

    def wait(self, keys: list[str], timeout: Any = None) -> None:
        for key in keys:
            self.get(key)

    def check(self, keys: list[str]) -> bool:
        return all(key in self._found for key in keys)

    def set_timeout(self, timeout: Any) -> None:
        """The generation's end and BUILD_S are the only timeouts."""

    def close(self) -> None:
        """Close the calling thread's connection."""
        self._client.close()

    def _ask(self, wanted: list[str]) -> None:
        end = time.monotonic() + BUILD_S
        while True:
            body = {**self._who, "set": self._mine, "get": wanted}
            try:
                answer = self._client.call("store", body, wait_ms=2_000)
            except (Refused, MasterAway) as error:
                raise GenerationOver(str(error)) from error
            if "values" in answer:
                self._found |= {key: base64.b64decode(value) for key, value in answer["values"].items()}
                return
            if time.monotonic() > end:
                raise GenerationOver(f"no worker sent {', '.join(wanted)} within {BUILD_S:.0f}s")


class Inside:
    """One generation's Gloo or NCCL group, the only reference to it, and its sockets.

    A group has threads, which a forked process lacks: it dies of a segmentation fault if the garbage
    collector destroys a group there. So a group is dropped as soon as it is not needed.
    """

    def __init__(
        self, group: Any, backend: str, sockets: list[socket.socket], store: MasterStore | None = None
    ) -> None:
        self.group = group
        self.backend = backend
        self._sockets = sockets
        self._store = store  # NCCL's watchdog uses it while the group lives, and crashes without it

    def sever(self) -> None:
        """Free all threads that wait in a collective of this group, here and at the peers. Thread-safe."""
        for end in self._sockets:
            with contextlib.suppress(OSError):  # closed already
                end.shutdown(socket.SHUT_RDWR)
        if self.backend == "nccl":
            self.group.abort()

    def close(self) -> None:
        """Drop the group. Only call it while no thread waits for a collective of it."""
        self.sever()
        for end in self._sockets:
            end.close()
        self._sockets = []
        self.group = self._store = None


def solo() -> Inside:
    """A world of one: without peers there is no group."""
    return Inside(None, "gloo", [])


def build(
    store: MasterStore, rank: int, size: int, host: str, device: torch.device, over: threading.Event
) -> Inside:
    """The group of a generation: NCCL if each worker has a GPU of its own, else Gloo.

    NCCL refuses two workers on one GPU, as with two fractions of it. Gloo also sums GPU tensors, by way of
    main memory. Raises GenerationOver when `over` is set or a peer cannot be reached.
    """
    result: list[Inside | BaseException] = []
    done = threading.Event()

    def connect() -> None:
        try:
            apart = device.type == "cuda" and _apart(store, rank, size, device)
            made = _nccl(store, rank, size, device) if apart else _gloo(store, rank, size, host)
            result.append(made)
        except BaseException as error:  # noqa: BLE001 - raised again by the waiting thread
            result.append(error)
        store.close()
        done.set()

    # In another thread: if a peer has just stopped, Gloo waits for its timeout, this thread only for `over`.
    threading.Thread(target=connect, name=f"build-{rank}", daemon=True).start()
    while not done.wait(0.02 if over.is_set() else 0.2):
        if over.is_set():
            raise GenerationOver("a member was lost while the group was built")
    found = result[0]
    if isinstance(found, Inside):
        if over.is_set():
            found.close()
            raise GenerationOver("a member was lost while the group was built")
        return found
    if isinstance(found, (GenerationOver, RuntimeError)):
        raise GenerationOver(str(found)) from found
    raise found


def _apart(store: MasterStore, rank: int, size: int, device: torch.device) -> bool:
    """True if no two workers compute on one GPU. The same answer on all ranks."""
    store.set(f"gpu/{rank}", str(torch.cuda.get_device_properties(device).uuid))
    return len({store.get(f"gpu/{peer}") for peer in range(size)}) == size


def _gloo(store: MasterStore, rank: int, size: int, host: str) -> Inside:
    before = _sockets()
    theirs = set()
    try:
        options = dist.ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=COLLECTIVE_S)
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
        listening = {name for fd, (name, _, listens) in _sockets().items() if fd not in before and listens}
        store.set(f"listen/{rank}", " ".join(f"{host}:{port}" for host, port in sorted(listening)))
        group = dist.ProcessGroupGloo(store, rank, size, options)
        for peer in range(size):
            for address in store.get(f"listen/{peer}").decode().split():
                at, _, port = address.rpartition(":")
                theirs.add((at, int(port)))
    except BaseException:
        options = group = None  # the error's traceback would keep them alive; see Inside
        raise
    ends = [
        socket.socket(fileno=os.dup(fd))
        for fd, (name, peer_name, listens) in _sockets().items()
        if fd not in before and not listens and (name in listening or peer_name in theirs)
    ]
    return Inside(group, "gloo", ends)


def _nccl(store: MasterStore, rank: int, size: int, device: torch.device) -> Inside:
    # By default its watchdog ends the process when a peer is gone; here the job handles that.
    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
    os.environ["TORCH_NCCL_ENABLE_MONITORING"] = "0"
    store.together = False  # NCCL asks for other keys
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=COLLECTIVE_S)
    group = dist.ProcessGroupNCCL(store, rank, size, options)
    index = torch.cuda.current_device() if device.index is None else device.index
    group.eager_connect_single_device(torch.device("cuda", index))  # here, not in the main thread
    return Inside(group, "nccl", [], store)


def _sockets() -> dict[int, tuple[tuple[str, int], tuple[str, int], bool]]:
    """The TCP sockets of this process: descriptor -> (own address, peer's address, True if it listens)."""
    found = {}
    for entry in os.listdir("/proc/self/fd"):
        fd = int(entry)
        try:
            if not os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                continue
            end = socket.socket(fileno=os.dup(fd))
        except OSError:
            continue  # closed meanwhile
        with end:
            if end.family not in (socket.AF_INET, socket.AF_INET6) or end.type != socket.SOCK_STREAM:
                continue
            name, peer = end.getsockname()[:2], ("", 0)
            with contextlib.suppress(OSError):
                peer = end.getpeername()[:2]
            found[fd] = (name, peer, bool(end.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)))
    return found


class ElasticGroup(dist.ProcessGroup):  # type: ignore[misc]
    """The process group as DistributedDataParallel sees it.

    To torch it is a world of one, so that DDP divides gradients by 1: they are weighted by records first and
    then summed. `broken` keeps the first error: the step must be redone.
    """

    def __init__(self) -> None:
        super().__init__(0, 1)
        self.inside = solo()
        self.rank_now, self.size_now = 0, 1
        self.broken: str | None = None
        self.forbidden: str | None = None  # why no collective may start now; None: one may
        self._pending: list[Any] = []

    def getBackendName(self) -> str:
        return "pliant"

    def replace(self, inside: Inside, rank: int, size: int) -> None:
        """Enter the next generation. The old inside is closed when this returns."""
        self.drop()
        self.inside, self.rank_now, self.size_now, self.broken = inside, rank, size, None

    def drop(self) -> None:
        """Leave the generation; collectives fail until the next `replace`."""
        self.inside.sever()
        for work in self._pending:
            with contextlib.suppress(RuntimeError):
                work.wait()
        self._pending.clear()
        self.broken = self.broken or "between two generations"
        self.inside.close()

    def sever(self) -> None:
        """Mark the generation as dead and free waiting collectives. Thread-safe."""
        self.broken = self.broken or "a member was lost"
        self.inside.sever()

    # -- what DDP calls --------------------------------------------------------------------------------

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        return self._start("allreduce", tensors, opts or dist.AllreduceOptions())

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        return self._start("broadcast", tensors, opts or dist.BroadcastOptions())

    def _start(self, name: str, tensors: Any, opts: Any) -> Any:
        self.allowed()
        if self.inside.group is None:
            raise GenerationOver(self.broken or "no group")
        try:
            work = getattr(self.inside.group, name)(tensors, opts)
        except RuntimeError as error:
            self.broken = self.broken or str(error)
            raise GenerationOver(self.broken) from error
        self._pending.append(work)
        return work

    # -- what the library calls ------------------------------------------------------------------------

    def allowed(self) -> None:
        """Raises BadSettings where a collective would wait forever for the other workers."""
        if self.forbidden is not None:
            raise BadSettings(self.forbidden)

    def sum(self, tensor: torch.Tensor) -> None:
        """Sum over all ranks, in place. Raises GenerationOver."""
        self.finish(self.begin_sum(tensor))

    def send(self, tensor: torch.Tensor, source: int) -> None:
        """Copy the source's values to all ranks, in place. Raises GenerationOver."""
        self.finish(self.begin_send(tensor, source))

    def begin_sum(self, tensor: torch.Tensor) -> Any:
        """Start a `sum`; `finish` waits for it. Raises GenerationOver."""
        return self.allreduce([tensor]) if self._talks() else None

    def begin_send(self, tensor: torch.Tensor, source: int) -> Any:
        """Start a `send`; `finish` waits for it. Raises GenerationOver."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = source, 0
        return self.broadcast([tensor], options) if self._talks() else None

    def finish(self, work: Any) -> None:
        """Wait for a started `sum` or `send`. Raises GenerationOver."""
        if work is None:
            return
        try:
            work.wait()
        except RuntimeError as error:
            self.broken = self.broken or str(error)
            raise GenerationOver(self.broken) from error
        if self.broken is not None:
            raise GenerationOver(self.broken)

    def _talks(self) -> bool:
        self.allowed()
        return self.size_now > 1 or self.broken is not None

    def all_ended(self) -> None:
        """Call it when all collectives of a step have ended. Raises GenerationOver if one was broken off.

        On a GPU, `finish` returns when a collective is queued, not ended: read its result before this call.
        """
        if self.broken is not None:
            raise GenerationOver(self.broken)
        self._pending.clear()

    def failed(self) -> bool:
        """True if an error of a backward pass came from a collective."""
        for work in self._pending:
            future = work.get_future()  # the work itself learns of its error a moment later
            if future.done():
                try:
                    future.value()
                except RuntimeError as error:
                    self.broken = self.broken or str(error)
        return self.broken is not None
