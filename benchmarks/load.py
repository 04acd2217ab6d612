"""How much load a server handles: submissions and lists at a steady rate, and 1,000 watch streams.

Requests are due at fixed times, whether or not earlier ones are answered, and a time counts from when its
request is due: a server that falls behind gets long times. Goals: 200 submissions a second for 60 s beside 50
lists (a page of 50) a second, after which 12,000 are pending; p50 of a submission at most 4 times that of a
handler that does nothing, p99 of a list 100 ms, nothing lost; every stream has a change within 1 s. Then
increasing rates for 15 s, each on its own server, until p99 of a submission is above 100 ms; the highest that
held runs again for 60 s.

Input: made here. Trainings of one GPU on a node of one: the first runs, the others wait in every cycle.
Reference in the same run: GET /healthz, 50 a second, at the same time.
"""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from measure import Server, cpu_seconds, head, percentile, resident, row, tiny, training

CONNECTIONS = 16
"""Connections of each kind of request; a request waits for a free one."""

STEADY = 100
"""ms: the highest p99 of a submission at a rate that holds."""


@dataclass
class Kind:
    """One kind of request, with the times and errors of its answers."""

    make: Callable[[int], bytes]
    rate: int
    times: list[float] = field(default_factory=list)  # ms since each was due
    wrong: list[str] = field(default_factory=list)


def request(method: str, path: str, token: str, body: object = None) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}"]
    lines += ["Content-Type: application/json", f"Content-Length: {len(data)}", "", ""]
    return "\r\n".join(lines).encode() + data


class Line:
    """A kept connection."""

    def __init__(self, host: str, port: int) -> None:
        self._where = host, port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, sent: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._where)
        reader, writer = self._streams
        writer.write(sent)
        top = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(top.partition("content-length:")[2].split()[0])
        return int(top.split()[1]), await reader.readexactly(size)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


async def send(kind: Kind, seconds: float, where: tuple[str, int]) -> None:
    free: asyncio.Queue[Line] = asyncio.Queue()
    lines = [Line(*where) for _ in range(CONNECTIONS)]
    for line in lines:
        free.put_nowait(line)

    async def one(number: int, due: float) -> None:
        line = await free.get()
        status, told = await line.ask(kind.make(number))
        kind.times.append((time.perf_counter() - due) * 1e3)
        if status >= 300:
            kind.wrong.append(f"{status} {told[:200].decode(errors='replace')}")
        free.put_nowait(line)

    began, tasks = time.perf_counter(), []
    for number in range(int(kind.rate * seconds)):
        due = began + number / kind.rate
        await asyncio.sleep(max(0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(number, due)))
    await asyncio.gather(*tasks)
    for line in lines:
        line.close()


async def together(work: list[Awaitable[None]]) -> None:
    await asyncio.gather(*work)


def play(server: Server, rate: int, seconds: float, mark: str) -> tuple[Kind, Kind, Kind]:
    """(submissions, lists, requests that do nothing) of one identity, without a limit of the request rate."""
    server.run("cluster", "settings", "request-rate=0")
    with server.client() as client:
        address = urlsplit(client.url)
    where, token = (address.hostname or "", address.port or 0), server.token()
    page = request("GET", "/api/v1/workloads?limit=50", token)
    nothing = request("GET", "/healthz", token)

    def submission(number: int) -> bytes:
        body = training(f"{mark}-{number}", "sleep", "infinity")
        return request("POST", "/api/v1/workloads/trainings", token, body)

    kinds = Kind(submission, rate), Kind(lambda _: page, 50), Kind(lambda _: nothing, 50)
    asyncio.run(together([send(kind, seconds, where) for kind in kinds]))
    return kinds


def follow(server: Server, count: int) -> float:
    """ms from a submission until each of `count` watch streams has it."""
    with server.client() as client:
        address = urlsplit(client.url)
        asked = request("GET", "/api/v1/watch", server.token())

        async def told(ready: asyncio.Barrier, name: bytes) -> float:
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            writer.write(asked)
            await reader.readuntil(b"\r\n\r\n")
            await ready.wait()
            while name not in await reader.readuntil(b"\n"):
                pass
            at = time.perf_counter()
            writer.close()
            return at

        async def all_of_them() -> float:
            ready = asyncio.Barrier(count + 1)
            waits = [asyncio.create_task(told(ready, b"the-change")) for _ in range(count)]
            await ready.wait()
            at = time.perf_counter()
            await asyncio.to_thread(client.submit, "Training", training("the-change", "sleep", "infinity"))
            return (max(await asyncio.gather(*waits)) - at) * 1e3

        return asyncio.run(all_of_them())


def main() -> int:
    small = tiny(__doc__)
    seconds, rate, watchers, rates = (
        (2, 20, 20, (10,)) if small else (60, 200, 1000, (20, 40, 60, 80, 100, 120, 150))
    )
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with Server("1x1") as server:
        before = resident(server.pid)
        posts, lists, nothing = play(server, rate, seconds, "load")
        after = resident(server.pid)
        with server.client() as client:
            known = {item["name"] for item in client.workloads("default")}
        lost = posts.rate * seconds - len(posts.wrong) - len(known)
        seen = follow(server, watchers)
    empty = statistics.median(nothing.times), "an empty handler, p50"
    head(f"{rate} submissions and 50 lists a second for {seconds} s; {len(known)} at the end")
    for wrong in posts.wrong[:1] + lists.wrong[:1]:
        print(f"refused: {wrong}")
    row("submit, p50", statistics.median(posts.times), "ms", target=round(4 * empty[0], 2), to=empty)
    row("submit, p99", percentile(posts.times, 0.99), "ms", to=empty)
    row("list of 50, p99", percentile(lists.times, 0.99), "ms", target=100, to=empty)
    wrong, all_ = len(posts.wrong) + len(lists.wrong), len(posts.times) + len(lists.times)
    row("refused", 100 * wrong / all_, "%", target=0, to=(100, "all submissions and lists"))
    row(
        "accepted and not in the list", 100 * lost / len(posts.times), "%", target=0, to=(100, "all accepted")
    )
    row("memory of the server", after, "MB", to=(before, "before"))
    row(f"{watchers} followers, the last one is told", seen, "ms", target=1000, to=empty)
    held = 0
    for each in rates:
        if not step(each, 2 if small else 15):
            break
        held = each
    if held and not small:
        step(held, seconds)
    return 0


def step(rate: int, seconds: int) -> bool:
    """True if p99 of a submission at this rate is at most STEADY, on a new server."""
    with Server("1x1") as server:
        cpu = cpu_seconds(server.pid)
        posts, lists, nothing = play(server, rate, seconds, "step")
        cpu, size = cpu_seconds(server.pid) - cpu, resident(server.pid)
        with server.client() as client:
            known = len([*client.workloads("default")])
    empty, p99 = (statistics.median(nothing.times), "an empty handler, p50"), percentile(posts.times, 0.99)
    what = f"{rate} a second for {seconds} s"
    row(f"{what}: submit, p50", statistics.median(posts.times), "ms", target=round(4 * empty[0], 2), to=empty)
    row(f"{what}: submit, p99", p99, "ms", target=STEADY, to=empty)
    row(f"{what}: list of 50, p99", percentile(lists.times, 0.99), "ms", target=100, to=empty)
    row(f"{what}: processor", 100 * cpu / seconds, "%", to=(100, "one core"))
    print(f"{len(posts.times)} accepted, {known} there, {len(posts.wrong)} refused; {size:.0f} MB")
    return p99 <= STEADY


if __name__ == "__main__":
    sys.exit(main())
