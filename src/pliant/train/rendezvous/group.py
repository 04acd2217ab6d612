"""The communicator that DistributedDataParallel holds for good, and whose inside is replaced at each
generation.

Measured with Gloo: when a peer dies only its neighbours notice, the others sit in the collective until the
timeout; abort() and shutdown() do not free them, and dropping the group from another thread waits for them.
What does free them within milliseconds is shutting down the group's own sockets, so each generation knows its
own.
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

BUILD_S = 30.0  # the last resort: a value that no worker has sent by then is not awaited any longer
COLLECTIVE_S = 60.0  # the last resort, if neither a closed socket nor the master says that a peer is gone


class MasterStore(dist.Store):  # type: ignore[misc]  # torch is not read by the type checker
    """Where peers find one another's addresses: the master, under the token, for one generation.

    Its own values go along with every question, and when the worker greets a master that was restarted:
    that one learns them again, also of a rank that has all it needs and asks no more.
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
        """Hang up; only the thread that asked."""
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
    """One generation's group of Gloo or NCCL, the only reference to it, and the sockets that it lives on.

    A group has threads. A forked process does not have them, and dies of a segmentation fault when the
    garbage collector ends a group there: so a group is dropped as soon as it is of no use.
    """

    def __init__(
        self, group: Any, backend: str, sockets: list[socket.socket], store: MasterStore | None = None
    ) -> None:
        self.group = group
        self.backend = backend
        self._sockets = sockets
        self._store = store  # NCCL's watchdog asks it as long as the group lives, and crashes without it

    def sever(self) -> None:
        """Free everybody who sits in a collective of this group, here and at the peers. From any thread."""
        for end in self._sockets:
            with contextlib.suppress(OSError):  # closed already
                end.shutdown(socket.SHUT_RDWR)
        if self.backend == "nccl":
            self.group.abort()

    def close(self) -> None:
        """Drop the group. Only where no collective of it is waited for."""
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
    """The group of a generation: NCCL where each worker has a GPU of its own, Gloo elsewhere.

    NCCL refuses two workers on one GPU, which is what two shares of it are. Gloo sums tensors of GPUs, too,
    by way of the main memory. Raises GenerationOver when `over` is set or a peer cannot be reached.
    """
    result: list[Inside | BaseException] = []
    done = threading.Event()

    def connect() -> None:
        try:
            apart = device.type == "cuda" and _apart(store, rank, size, device)
            made = _nccl(store, rank, size, device) if apart else _gloo(store, rank, size, host)
            result.append(made)
        except BaseException as error:  # noqa: BLE001 - raised again by who waits
            result.append(error)
        store.close()
        done.set()

    # Beside the main thread: a peer that is stopped just now lets Gloo wait for its timeout, us for `over`
    # only.
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
    """Whether no two workers compute on one GPU. The same answer on all ranks."""
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
        options = group = None  # the error's traceback keeps what this frame holds; see Inside
        raise
    ends = [
        socket.socket(fileno=os.dup(fd))
        for fd, (name, peer_name, listens) in _sockets().items()
        if fd not in before and not listens and (name in listening or peer_name in theirs)
    ]
    return Inside(group, "gloo", ends)


def _nccl(store: MasterStore, rank: int, size: int, device: torch.device) -> Inside:
    # Its watchdog ends the process when a peer is gone, unless told that somebody else takes care of that.
    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
    os.environ["TORCH_NCCL_ENABLE_MONITORING"] = "0"
    store.together = False  # it asks for keys of its own
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=COLLECTIVE_S)
    group = dist.ProcessGroupNCCL(store, rank, size, options)
    index = torch.cuda.current_device() if device.index is None else device.index
    group.eager_connect_single_device(torch.device("cuda", index))  # here, beside the main thread
    return Inside(group, "nccl", [], store)


def _sockets() -> dict[int, tuple[tuple[str, int], tuple[str, int], bool]]:
    """The TCP sockets of this process: descriptor -> (own address, peer's, listens)."""
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
    """What DistributedDataParallel believes to be its process group.

    To torch it is a world of one, so that DDP divides gradients by 1: they are weighted by records before,
    and summed. Errors stay inside: `broken` says that the step must be redone.
    """

    def __init__(self) -> None:
        super().__init__(0, 1)
        self.inside = solo()
        self.rank_now, self.size_now = 0, 1
        self.broken: str | None = None
        self.forbidden: str | None = None  # why no collective may start just now
        self._pending: list[Any] = []

    def getBackendName(self) -> str:
        return "pliant"

    def replace(self, inside: Inside, rank: int, size: int) -> None:
        """The next generation. The old inside is gone when this returns."""
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
        """The generation is dead. From any thread."""
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
        """Raises BadSettings where a collective would wait for workers that do not come."""
        if self.forbidden is not None:
            raise BadSettings(self.forbidden)

    def sum(self, tensor: torch.Tensor) -> None:
        """Sum over all ranks, in place. Raises GenerationOver."""
        self.finish(self.begin_sum(tensor))

    def send(self, tensor: torch.Tensor, source: int) -> None:
        """The source's values, on all ranks, in place. Raises GenerationOver."""
        self.finish(self.begin_send(tensor, source))

    def begin_sum(self, tensor: torch.Tensor) -> Any:
        """`sum`, which `finish` waits for. Raises GenerationOver."""
        return self.allreduce([tensor]) if self._talks() else None

    def begin_send(self, tensor: torch.Tensor, source: int) -> Any:
        """`send`, which `finish` waits for. Raises GenerationOver."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = source, 0
        return self.broadcast([tensor], options) if self._talks() else None

    def finish(self, work: Any) -> None:
        """Wait for what was begun. Raises GenerationOver."""
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
        """All collectives of this step have ended. Raises GenerationOver if one was broken off.

        On a GPU a collective is only in a queue when `finish` returns: read what it has summed before this.
        """
        if self.broken is not None:
            raise GenerationOver(self.broken)
        self._pending.clear()

    def failed(self) -> bool:
        """Whether an error that came out of a backward pass was a collective's."""
        for work in self._pending:
            future = work.get_future()  # the work itself learns of its error a moment later
            if future.done():
                try:
                    future.value()
                except RuntimeError as error:
                    self.broken = self.broken or str(error)
        return self.broken is not None
