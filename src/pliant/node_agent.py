"""The agent of one cluster node: it writes the limits of GPU fractions to files that their pods read,
measures what those pods use, exports metrics to Prometheus, and writes events about problems."""

import argparse
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pliant.api.responses.node_metrics import CONTENT_TYPE, Row, scrape_node
from pliant.devices.kept import Folder, Kept, read
from pliant.devices.node_look import Look, Looker, Trouble
from pliant.devices.nvml import NvmlDevices

try:
    from pliant.engines.kube.apiserver.connection import Connection, Unreachable
    from pliant.engines.kube.fractions.agents import FOLDER, folder_of
    from pliant.engines.kube.node_pods import NodePod, NodePods
except ModuleNotFoundError as missing:
    sys.exit(f"pliant: the agent needs {missing.name}: pip install 'pliant[kubernetes]'.")

log = logging.getLogger("pliant.node_agent")

EVERY_SECONDS = 1.0
AT_MOST = 20  # the pause after a look is at least this many times the look's CPU time
AGAIN_SECONDS = 2.0
"""Seconds before a failed step of the start is tried again."""

QUIET_SECONDS = 60.0
"""Least seconds between two events of one pod, or of the node, with the same reason."""

PORT = 9440

BROKEN = "GpuLimitsBroken"
"""Reason of an event: the limits of a pod cannot be read or written."""


class NodeAgent:
    """`listed` and `changed` are called by the thread that follows the pods, `look` by another thread."""

    def __init__(self, node: str, folder: Path, looker: Looker) -> None:
        self.node = node
        self._folder, self._looker = Folder(folder), looker
        self._lock = threading.Lock()
        self._pods: dict[str, NodePod] = {}  # by uid; pods that are not over
        self._kept: dict[str, Kept] = {}  # by uid; those that have GPU fractions
        self._broken: dict[str, tuple[NodePod, Trouble]] = {}  # pods whose limits cannot be written, by uid
        self._told: set[tuple[str, str, str]] = set()  # (uid, reason, mark) of reported troubles that last
        self._last: dict[tuple[str, str], float] = {}  # (uid, reason): time of the last event, monotonic s
        self._seen = Look()
        self._events: Counter[str] = Counter()
        self.ready = False

    def run(self, connection: Connection) -> None:
        """Runs until the process ends."""
        watch = NodePods(connection, self.node, self.listed, self.changed)
        self._patiently(lambda: None if self._folder.claim() else "another agent of this node has not ended")
        self._patiently(watch.open)
        self.ready = True
        log.info("writes limits to %s", FOLDER)
        while True:
            began = time.thread_time()
            try:
                self.look(watch)
            except Exception:  # a failed look does not end the loop
                log.exception("node %s could not be looked at", self.node)
            time.sleep(max(EVERY_SECONDS, AT_MOST * (time.thread_time() - began)))

    def _patiently(self, step: Callable[[], str | None]) -> None:
        said = ""
        while (trouble := self._tried(step)) is not None:
            if trouble != said:
                log.error("%s", trouble)
            said = trouble
            time.sleep(AGAIN_SECONDS)

    def _tried(self, step: Callable[[], str | None]) -> str | None:
        try:
            return step()
        except (Unreachable, ValueError) as error:
            return str(error)

    # ---- limits ----

    def listed(self, pods: Sequence[NodePod]) -> None:
        there = {pod.uid for pod in pods if not pod.over}
        with self._lock:
            gone = [pod for uid, pod in self._pods.items() if uid not in there]
        for pod in gone:
            self.changed(False, pod)
        for pod in pods:
            self.changed(True, pod)
        with self._lock:
            self._folder.sweep({_name(pod): uid for uid, pod in self._pods.items()})

    def changed(self, there: bool, pod: NodePod) -> None:
        with self._lock:
            if not there or pod.over:
                self._forget(pod)
                return
            self._pods[pod.uid] = pod
            if pod.conf:
                self._write(pod)

    def _write(self, pod: NodePod) -> None:
        try:
            self._kept[pod.uid] = self._folder.put(_name(pod), pod.uid, read(pod.conf))
        except ValueError as error:
            kept = "the limits of before stay" if pod.uid in self._kept else "it cannot start"
            text = f"its annotation with the limits is broken: {error}; {kept}"
        except OSError as error:
            text = f"its limits cannot be written to {FOLDER}: {error.strerror}"
        else:
            self._broken.pop(pod.uid, None)
            return
        self._broken[pod.uid] = (pod, Trouble(pod.uid, BROKEN, text, text))

    def _forget(self, pod: NodePod) -> None:
        self._pods.pop(pod.uid, None)
        if self._kept.pop(pod.uid, None) is not None:
            self._folder.drop(_name(pod))

    # ---- what is seen ----

    def look(self, watch: NodePods) -> None:
        with self._lock:
            kept, pods, broken = dict(self._kept), dict(self._pods), list(self._broken.values())
        ours = {uid for uid, pod in pods.items() if pod.ours}
        self._seen = self._looker.look(kept, ours)
        pods |= {pod.uid: pod for pod, _ in broken}  # also pods that have ended since
        self._tell(watch, pods, [*(trouble for _, trouble in broken), *self._seen.troubles])
        with self._lock:
            for pod, _ in broken:
                now = self._pods.get(pod.uid)
                if now is None:
                    self._broken.pop(pod.uid, None)
                elif now.conf:
                    self._write(now)  # a full folder may have room now

    def _tell(self, watch: NodePods, pods: Mapping[str, NodePod], troubles: Sequence[Trouble]) -> None:
        now = time.monotonic()
        present = {(each.uid, each.reason, each.mark) for each in troubles}
        self._told &= present
        self._last = {key: at for key, at in self._last.items() if now - at < QUIET_SECONDS}
        for each in troubles:
            key, pod = (each.uid, each.reason), pods.get(each.uid)
            if (*key, each.mark) in self._told or key in self._last:
                continue
            self._told.add((*key, each.mark))
            self._last[key] = now
            self._events[each.reason] += 1
            log.warning("%s: %s", f"pod {pod.namespace}/{pod.name}" if pod else "node", each.text)
            watch.warn(pod, each.reason, each.text)

    def metrics(self) -> bytes:
        with self._lock:
            pods = dict(self._pods)
        seen = self._seen
        rows = [
            Row(pod.project, pod.workload, pod.name, used.parts, used.refused)
            for uid, used in seen.pods.items()
            if (pod := pods.get(uid)) is not None
        ]
        return scrape_node(self.node, rows, seen.loads, seen.outside, self._events)


def _name(pod: NodePod) -> str:
    return Path(folder_of(pod.namespace, pod.name)).name


class _Answers(BaseHTTPRequestHandler):
    agent: NodeAgent
    timeout = 10  # seconds without a request after which the connection is closed

    def do_GET(self) -> None:
        match self.path:
            case "/metrics":
                self._answer(200, CONTENT_TYPE, self.agent.metrics())
            case "/readyz":
                ready = self.agent.ready
                self._answer(200 if ready else 503, "text/plain", b"ok\n" if ready else b"not yet\n")
            case _:
                self._answer(404, "text/plain", b"There are /metrics and /readyz.\n")

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Logs no requests."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pliant node agent")
    parser.add_argument("--node", default=os.environ.get("NODE_NAME", ""), help="of which; else NODE_NAME")
    parser.add_argument("--kubeconfig", type=Path, help="of the cluster; else that of which it is a pod")
    parser.add_argument("--port", type=int, default=PORT, help="of /metrics and /readyz")
    parser.add_argument("--audit", action="store_true", help="it sees the processes of the node (hostPID)")
    given = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if not given.node:
        parser.error("--node NAME or NODE_NAME says on which node it is")
    devices = NvmlDevices(lambda pid: False)
    if devices.reason:
        log.warning("memory and load of GPUs are known from ledgers alone: %s", devices.reason)
    proc = Path("/proc") if given.audit else None
    agent = NodeAgent(given.node, Path(FOLDER), Looker(devices.processes, devices.loads, proc=proc))
    try:
        connection = Connection(given.kubeconfig)
        server = ThreadingHTTPServer(("", given.port), type("Answers", (_Answers,), {"agent": agent}))
    except (Unreachable, OSError) as error:
        sys.stderr.write(f"pliant: {error}\n")
        return 1
    threading.Thread(target=server.serve_forever, name="pliant-metrics", daemon=True).start()
    agent.run(connection)
    return 0


if __name__ == "__main__":
    sys.exit(main())
