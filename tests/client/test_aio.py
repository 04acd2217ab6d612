"""The client for asyncio: concurrent calls, abandoned streams."""

import asyncio
import json
import threading
import time

import pytest

from pliant.client import AsyncClient, Client
from tests.cli.fake import TOKEN, Answer, Chunks
from tests.cli.items import workload


def threads() -> set[threading.Thread]:
    return {it for it in threading.enumerate() if it.name.startswith("pliant-")}


def test_every_method_of_the_client_is_there():
    made = AsyncClient(Client("http://127.0.0.1:1", TOKEN))
    public = [name for name in dir(Client) if not name.startswith("_") and callable(getattr(Client, name))]
    assert len(public) > 60
    for name in public:
        assert callable(getattr(made, name)), name
    with pytest.raises(AttributeError, match="no method nothing"):
        made.nothing  # noqa: B018 - asking is the test


def test_calls_are_under_way_at_once(fake):
    barrier = threading.Barrier(3)

    class Late(dict):
        """Answers a request only after all three have arrived."""

        def get(self, asked):
            if asked[1] == "/api/v1/whoami":
                barrier.wait(60)
            return super().get(asked)

    fake.answers = Late({("GET", "/api/v1/whoami"): Answer(200, {"user": "anna", "id": "1"})})

    async def run():
        async with AsyncClient(Client(fake.url, TOKEN)) as client:
            return await asyncio.gather(*(client.ask(Client.whoami) for _ in range(3)))

    assert [each["user"] for each in asyncio.run(run())] == ["anna"] * 3


def test_a_stream_that_is_left_is_broken_off(fake):
    """No thread keeps waiting for the rest of an abandoned stream."""

    class Endless(Chunks):
        def __iter__(self):
            yield f"id: 1\nevent: workload\ndata: {json.dumps({'id': 'a'})}\n\n".encode()
            gate.wait(60)

    gate = threading.Event()
    fake._stream = lambda request, path: Answer(200, Endless())
    before = threads()

    async def run():
        async with AsyncClient(Client(fake.url, TOKEN)) as client:
            changes = client.watch()
            first = await anext(changes)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(changes), 0.2)
            await changes.aclose()
            return first.item["id"]

    assert asyncio.run(run()) == "a"
    deadline = time.monotonic() + 30
    while threads() - before:
        assert time.monotonic() < deadline, threads() - before
        time.sleep(0.02)
    gate.set()


def test_what_has_several_steps_runs_in_a_thread(fake):
    fake.workloads = [workload("a1")]

    async def run():
        async with AsyncClient(Client(fake.url, TOKEN)) as client:
            names = [item["name"] async for item in client.each(Client.workloads)]
            job = await client.run(lambda it: it.find("a1", "team-a"))
            return names, job["id"]

    assert asyncio.run(run()) == (["a1"], "id-a1")
