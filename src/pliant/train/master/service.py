"""The master of a job: serves membership, ledger and shard queues over HTTP. No torch, no call per step."""

import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pliant.train.errors import Refused, count
from pliant.train.master.admission import clock_apart, of_this_job, room_for, same_settings
from pliant.train.master.history import Progress, overview
from pliant.train.master.httpd import Answer, Call, Route, Server, listen
from pliant.train.master.ledger import Ledger
from pliant.train.master.membership import Generation, Membership, Times, Worker
from pliant.train.master.queues import Queues

MAX_FAILURES = 3  # failures of the user's script after which the job fails
MAX_WARNINGS = 20  # the newest warnings, shown in the status


def monotonic_ms() -> int:
    """Now, on a monotonic clock."""
    return time.monotonic_ns() // 1_000_000


class Master:
    """One job. Thread-safe; `close` ends it."""

    def __init__(
        self,
        folder: Path,
        job: str,
        token: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        listener: Any = None,
        times: Times | None = None,
        min_workers: int = 1,
        clock: Callable[[], int] = monotonic_ms,
    ) -> None:
        self.job = job
        self._clock = clock
        self._lock = threading.RLock()
        self.ledger = Ledger(folder)
        self.settings: dict[str, Any] | None = None
        self.members = Membership(times or Times(), min_workers, record=self._record)
        self.progress = Progress()
        self.queues = Queues(self.ledger)
        self.stop: dict[str, Any] | None = None
        self.failures: list[tuple[str, str]] = []  # (worker, traceback), oldest first
        self.quarantined: dict[tuple[int, int], str] = {}
        self.warnings: list[str] = []
        self._view: tuple[Any, ...] = ()
        self._seq = 0
        self._kv: dict[int, dict[str, str]] = {}
        self._boot = secrets.token_hex(8)  # new at each start: what is not in the ledger is then lost
        self._replay()
        routes: dict[str, Route] = {
            "register": self._register,
            "watch": self._watch,
            "ready": self._ready,
            "store": self._store,
            "restored": self._restored,
            "progress": self._report,
            "warn": self._warn,
            "quarantine": self._quarantine,
            "failed": self._failed,
            "finished": self._finished,
            "expect": self._expect,
            "leave": self._leave,
            "exited": self._exited,
            "status": self._status,
            "stop": self._stop_all,
        }
        routes |= {name: self._queue(name) for name in ("lease", "claim", "done", "return")}
        self.server = Server(listener or listen(host, port), token, routes, self._line)
        self.address = "{}:{}".format(*self.server.server_address[:2])
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self.server.serve_forever, args=(0.2,), name="http", daemon=True),
            threading.Thread(target=self._tick, name="tick", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Close all connections, stop the threads and close the ledger."""
        self._over.set()
        self.server.close()
        for thread in self._threads:
            thread.join()
        self.ledger.close()

    # -- the loop --------------------------------------------------------------------------------------

    def _tick(self) -> None:
        while not self._over.wait(0.02 if self.members.dead >= self.members.number else 0.05):
            with self._lock:
                self._advance()

    def _advance(self) -> None:
        """Advance the state machines; wake the waiting calls if anything changed."""
        now = self._clock()
        self.members.tick(now)
        self.queues.tick(now, {w.name for w in self.members.workers.values() if w.state in ("lost", "left")})
        m = self.members
        view = (m.number, m.dead, m.boundary, self.stop is not None)
        if view != self._view or m.verdicts:
            if view != self._view:
                self._view, self._seq = view, self._seq + 1
            self.server.bell.ring()

    def _record(self, generation: Generation) -> None:
        self.ledger.append("generation", generation.body())
        self.progress.generation(generation.number, len(generation.members), generation.step)
        self._kv = {number: kv for number, kv in self._kv.items() if number >= generation.number}

    def _replay(self) -> None:
        now = self._clock()
        for event in self.ledger.events():
            body = event.body
            if event.kind == "job":
                self.settings = body["settings"]
            elif event.kind == "generation":
                self._adopt(body, now)
            elif event.kind in ("progress", "restored"):
                self.progress.replay(event.kind, body)
            elif event.kind == "quarantine":
                self.quarantined[body["epoch"], body["index"]] = body["error"]
            elif event.kind in ("finished", "failed"):
                self.stop = {"ok": event.kind == "finished", "error": body.get("error")}
            elif event.kind in ("queue", "shard"):
                self.queues.replay(event.kind, body)
        for worker in self.members.workers.values():
            worker.step = max(worker.step, self.progress.step)

    def _adopt(self, body: dict[str, Any], now: int) -> None:
        """Take over a generation that an earlier master formed, and wait for its members."""
        m = self.members
        m.number = body["generation"]
        m.generation = Generation(
            m.number, tuple(body["members"]), body["step"], body["source"], body["sync"], body["restore"]
        )
        m.workers = {
            name: Worker(name, state="member", step=body["step"], seen=now, restored=True)
            for name in body["members"]
        }
        m.dead = m.number - 1
        self.progress.generation(m.number, len(body["members"]), body["step"])

    def _line(self, worker: str, up: bool) -> None:
        with self._lock:
            if worker in self.members.workers:
                self.members.line(worker, up, self._clock())
            self._advance()

    # -- workers ---------------------------------------------------------------------------------------

    def _register(self, call: Call) -> Answer:
        name, job, now = call.get("worker", str), call.get("job", str), self._clock()
        of_this_job(name, job, call.get("protocol", int), self.job)
        with self._lock:
            self._note(clock_apart(name, call.get("now_ms", int)))
            self._same_settings(name, call.get("settings", dict, None))
            generation = call.get("generation", int, 0)
            if generation > self.members.number:
                self._rebuild(call.get("history", list, []), generation, call.get("step", int, -1))
            host, pid, step = call.get("host", str), call.get("pid", int), call.get("step", int, -1)
            self.members.register(name, host, pid, step, generation, now)
            self._hear(generation, call.get("told", dict, {}))
            self._advance()
            silence = self.members.times.silence
            return {"silence_ms": silence, "settings": self.settings, "stop": self.stop, "boot": self._boot}

    def _same_settings(self, name: str, settings: dict[str, Any] | None) -> None:
        if settings is None:
            return
        if self.settings is None:
            self.settings = settings
            self.ledger.append("job", {"settings": settings})
        same_settings(name, settings, self.settings)
        others = sum(worker.name != name for worker in self.members.present())
        room_for(name, others, self.settings.get("global_batch"))

    def _rebuild(self, history: list[dict[str, Any]], generation: int, step: int) -> None:
        """Complete a ledger that knows less than this worker from the worker's history."""
        known = self.members.number
        for body in history:
            if body["generation"] > known:
                self.ledger.append("generation", body)
                self._adopt(body, self._clock())
                if body["restore"]:
                    restored = {
                        "generation": body["generation"],
                        "step": body["restored"],
                        "checkpoint": None,
                    }
                    self.ledger.append("restored", restored)
        if self.members.number != generation:
            raise Refused("The history does not lead to the generation that it names", "malformed", 400)
        self.ledger.append("progress", {"generation": generation, "step": step})
        self.progress.step = step

    def _known(self, call: Call) -> str:
        name: str = call.get("worker", str)
        if not self.members.known(name):
            raise Refused(f"{name} was dropped from this job: register again", "dropped", 410)
        self.members.seen(name, self._clock())
        return name

    def _watch(self, call: Call) -> Answer:
        with self._lock:
            name = self._known(call)
            call.hold_line(name)
            if call.get("after", int) == self._seq:
                return None
            m = self.members
            return {
                "seq": self._seq,
                "boot": self._boot,
                "generation": m.number,
                "dead": m.dead,
                "boundary": m.boundary,
                "stop": self.stop,
            }

    def _ready(self, call: Call) -> Answer:
        with self._lock:
            if self.stop is not None:
                return {"what": "stop", **self.stop}
            name = self._known(call)
            m = self.members
            why, step, number = call.get("why", str), call.get("step", int), call.get("generation", int)
            m.ready(name, why, step, number, self._clock(), call.get("leaving", bool, False))
            if why != "join" and number == m.number:
                self._applied(number, step, {})
            self._advance()
            verdict = m.verdict(name)
            if verdict is None:
                return None
            if verdict["what"] == "train" and m.generation is not None:
                members = [{"worker": w, "host": m.workers[w].host} for w in m.generation.members]
                return {**m.generation.body(), **verdict, "workers": members}
            return verdict

    def _store(self, call: Call) -> Answer:
        with self._lock:
            self._known(call)
            number = call.get("generation", int)
            if number <= self.members.dead or number != self.members.number:
                raise Refused(f"Generation {number} is over", "over", 410)
            self._hear(number, call.get("set", dict, {}))
            kv, wanted = self._kv.get(number, {}), call.get("get", list, [])
            return {"values": {key: kv[key] for key in wanted}} if all(key in kv for key in wanted) else None

    def _hear(self, number: int, told: dict[str, str]) -> None:
        """Keep what a rank tells the others of its generation, and wake them."""
        kv = self._kv.setdefault(number, {}) if number == self.members.number else {}
        if any(kv.get(key) != value for key, value in told.items()):
            kv.update(told)
            self.server.bell.ring()

    def _restored(self, call: Call) -> Answer:
        with self._lock:
            self._known(call)
            body = {key: call.body.get(key) for key in ("generation", "step", "checkpoint")}
            if body["generation"] == self.members.number:
                self.ledger.append("restored", body)
                self.progress.replay("restored", body)
            return {}

    def _report(self, call: Call) -> Answer:
        with self._lock:
            name = self._known(call)
            number, step = call.get("generation", int), call.get("step", int)
            self.members.applied(name, step)
            if number == self.members.number:
                self._applied(number, step, call.body)
            return {}

    def _applied(self, number: int, step: int, body: dict[str, Any]) -> None:
        if self.progress.advance(step, body, self._clock()):
            self.ledger.append("progress", {"generation": number, "step": step, "loss": body.get("loss")})

    def _warn(self, call: Call) -> Answer:
        with self._lock:
            self._known(call)
            self._note(call.get("text", str))
            return {}

    def _note(self, warning: str | None) -> None:
        if warning is not None and warning not in self.warnings:
            self.warnings = [*self.warnings, warning][-MAX_WARNINGS:]

    def _quarantine(self, call: Call) -> Answer:
        with self._lock:
            self._known(call)
            epoch, index, error = call.get("epoch", int), call.get("index", int), call.get("error", str)
            allowed = (self.settings or {}).get("max_skipped_records", 0)
            if (epoch, index) not in self.quarantined:
                if len(self.quarantined) >= allowed:
                    text = f"Record {index} cannot be read: {error}."
                    hint = f"max_skipped_records is {allowed}, {len(self.quarantined)} are skipped already."
                    raise Refused(f"{text} {hint} Repair the data or allow more.", "skipped", 409)
                self.quarantined[epoch, index] = error
                self.ledger.append("quarantine", {"epoch": epoch, "index": index, "error": error})
            return {"skip": True}

    def _failed(self, call: Call) -> Answer:
        with self._lock:
            name = self._known(call)
            self._fail(name, call.get("traceback", str), fatal=call.get("fatal", bool, False))
            return {}

    def _fail(self, name: str, text: str, *, fatal: bool = False) -> None:
        self.failures.append((name, text))
        self.members.gone(name)
        alone = not [w for w in self.members.workers.values() if w.state in ("expected", "joining", "member")]
        if self.stop is None and (fatal or alone or len(self.failures) >= MAX_FAILURES):
            first, trace = self.failures[0]
            self._end(
                False,
                f"{count(len(self.failures), 'worker')} failed; the first, {first}:\n{trace}"
                if not fatal
                else text,
            )
        self._advance()

    def _end(self, ok: bool, error: str | None) -> None:
        self.ledger.append("finished" if ok else "failed", {"error": error, "skipped": len(self.quarantined)})
        self.stop = {"ok": ok, "error": error}

    def _finished(self, call: Call) -> Answer:
        with self._lock:
            name = self._known(call)
            done = self.members.saver == name and self.members.closing == "done"
            if done and self.stop is None:
                self._end(True, None)
            self.members.saved(name)
            self._advance()
            return {}

    def _queue(self, what: str) -> Route:
        def route(call: Call) -> Answer:
            with self._lock:
                name = self._known(call)
                if what == "lease" and self.members.workers[name].leaving:
                    return {"what": "leave"}
                answer = self.queues.call(what, name, call, self._clock())
                self.server.bell.ring()
                return answer

        return route

    # -- agents and the link ---------------------------------------------------------------------------

    def _expect(self, call: Call) -> Answer:
        with self._lock:
            if self.stop is None:
                self.members.expect(
                    call.get("workers", list), call.get("left_ms", int, 30_000), self._clock()
                )
                self._advance()
            return {"stop": self.stop}

    def _leave(self, call: Call) -> Answer:
        with self._lock:
            self.members.leave(call.get("workers", list))
            self._advance()
            return {}

    def _exited(self, call: Call) -> Answer:
        with self._lock:
            name, code = call.get("worker", str), call.get("code", int, None)
            if code not in (None, 0, 75) and name not in {worker for worker, _ in self.failures}:
                self._fail(name, f"{name} ended with exit code {code} before it could say why: see its log")
            self.members.gone(name)
            self._advance()
            return {}

    def _stop_all(self, call: Call) -> Answer:
        with self._lock:
            self.members.stopping = True
            self.members.leave(list(self.members.workers))
            self._advance()
            return {}

    def _status(self, _call: Call) -> Answer:
        with self._lock:
            skipped = len(self.quarantined) + self.queues.skipped()
            return {
                "job": self.job,
                **overview(self.members, self.stop, self._clock()),
                "skipped": skipped,
                "warnings": self.warnings,
                "queues": self.queues.status(),
                **self.progress.status(self.settings or {}),
            }
