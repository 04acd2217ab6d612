"""What the loop may rely on with every kind of store."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pliant.control.ports import Batch, Remembered, Saved, StaleEpoch, StoreClosed
from pliant.model.affinity import Affinity, Effect, Preference, Taint, Term, Toleration
from pliant.model.booking import Booking, Stage
from pliant.model.identity import (
    AccessKey,
    AccessRule,
    Account,
    Allowance,
    Application,
    EndedSession,
    LoginSession,
    User,
)
from pliant.model.ledger import Disruptions, PastUse
from pliant.model.machine import Cluster, Gpu, Node, NodePool, Strategy
from pliant.model.priority import PriorityClass
from pliant.model.progress import Point, Progress
from pliant.model.rights import Place
from pliant.model.tenancy import Department, Project, Quota, TimeLimits
from pliant.model.topology import Topology
from pliant.model.workload import Attempt, AttemptId, Task, Workload
from pliant.sched.world.rows import UnknownKind
from pliant.store import Database, StoreError, database, open_store, schema
from tests.store.samples import HERE, attempt, event, running, task, workload

CLUSTER = Cluster("c-1", created=5, version="1", labels=(("a", "b"),))
DEPARTMENT = Department("d", "default", derived=True)
PROJECT = Project("p", "team-a", (("default", Quota(2500, weight=None)),), 7, "", TimeLimits(training=5), "d")
POOL = NodePool("np", "default", gpu_strategy=Strategy.SPREAD, min_runtime=60_000)
NODE = Node("node-0", (Gpu("GPU-0", 0, 16 * 2**30, "H200"),), 16_000, 2**36, (("run.ai/type", "a"),))
TAINTED = replace(NODE, name="node-1", taints=(Taint("key", "v", Effect.NO_EXECUTE, since=7),), max_tasks=3)
PICKY = workload(
    2,
    affinity=Affinity(((Term("zone"),),), (Preference(5, (Term("rack", values=("a",)),)),)),
    tolerations=(Toleration("key", any_value=True, effect=Effect.NO_EXECUTE, lasting=5),),
    apart="rack",
    max_runtime=60_000,
)
ALL = (CLUSTER, DEPARTMENT, PROJECT, POOL, NODE, workload(1), task(1), attempt(1))
MEMORY = (
    Topology("room", ("row", "rack")),
    PastUse("p", "default", 2**70, 2**71, 9),
    Disruptions("p", (1, 2)),
    Booking("b-1", "vip", 5, 9, (("node-0", 2),), "p", "demo", "anna", 1, Stage.ACTIVE),
    PriorityClass("high-priority", 1_000_000, "first", 7),
    User("u-1", "anna", "$argon2id$hash", account=Account(1001, "anna"), last_login=5),
    Application("a-1", "bot", "client-a", "digest"),
    AccessKey("k-1", "laptop", "client-k", "digest", "user:u-1", "anna", "read", expires=9),
    AccessRule("r-1", "unix:bob", 5, Place(project="7"), uid=1002),
    LoginSession("s-1", "user:u-1", 2, 1, 9, "127.0.0.1"),
    Allowance("user:u-1", "7", running=2000, waiting=3, gpu_ms=2**50),
    EndedSession("e-1", 9),
)
REMEMBERED = tuple(type(row) for row in MEMORY)


def reopened(store: Database, where: str | Path) -> Saved:
    """What a second server would load."""
    other = open_store(where)
    try:
        return other.load()
    finally:
        other.close()


def test_a_new_store_is_empty(store: Database) -> None:
    assert store.load() == Saved([], {"serial": "0"})
    assert [*store.events("server")] == [*store.attempts("w-1")] == [*store.ended()] == []
    assert store.remembered("key") is None


def test_what_is_put_is_loaded_equal(store: Database, where: str | Path) -> None:
    store.commit(store.lead(), Batch(put=ALL[::-1], settings={"current": "team-a"}))  # in any order
    saved = Saved(
        [CLUSTER, POOL, DEPARTMENT, PROJECT, NODE, workload(1), task(1), attempt(1)],
        {"current": "team-a", "serial": "1"},
    )
    assert store.load() == saved == reopened(store, where)


def test_what_the_scheduler_knows_besides_is_loaded_equal(store: Database, where: str | Path) -> None:
    store.commit(store.lead(), Batch(put=(TAINTED, PICKY, *MEMORY)))
    saved = store.load()
    assert (saved.of(Node), saved.of(Workload)) == ((TAINTED,), (PICKY,))
    assert tuple(row for kind in REMEMBERED for row in saved.of(kind)) == MEMORY
    assert saved == reopened(store, where)
    store.commit(store.lead(), Batch(drop=MEMORY))
    saved = store.load()
    assert [row for kind in REMEMBERED for row in saved.of(kind)] == []


def test_what_a_job_reports_goes_with_its_workload(store: Database, where: str | Path) -> None:
    epoch = store.lead()
    said = Progress(
        "w-1", 5, "training", 3, step_times=((1, 900), (2, 500)), history=(Point(5, 3, 1, 7, "1"),)
    )
    store.commit(epoch, Batch(put=(said, workload(1))))
    assert store.load().of(Progress) == (said,)
    assert store.load() == reopened(store, where)
    store.commit(epoch, Batch(drop=(workload(1),)))
    assert store.load().of(Progress) == ()


@pytest.mark.parametrize("durable", [True, False])
def test_put_replaces_and_drop_removes(store: Database, durable: bool) -> None:
    epoch = store.lead()
    store.commit(epoch, Batch(put=(NODE, POOL, *ALL[5:]), durable=durable))
    store.commit(epoch, Batch(put=(replace(NODE, ready=False),), drop=(POOL, task(1)), durable=durable))
    saved = store.load()
    assert (saved.of(Node), saved.of(NodePool), saved.of(Task)) == ((replace(NODE, ready=False),), (), ())
    assert saved.of(Attempt) == (attempt(1),)


def test_in_one_batch_drops_go_first_and_the_last_put_counts(store: Database) -> None:
    epoch = store.lead()
    store.commit(epoch, Batch(put=(NODE,)))
    store.commit(epoch, Batch(put=(replace(NODE, cpu=1), replace(NODE, cpu=2)), drop=(NODE,)))
    assert store.load().of(Node) == (replace(NODE, cpu=2),)


def test_replacing_a_workload_leaves_its_tasks_and_dropping_it_does_not(store: Database) -> None:
    epoch = store.lead()
    store.commit(epoch, running(1))
    store.commit(epoch, Batch(put=(workload(1, priority=80),)))
    assert len(store.load().of(Task)) == len(store.load().of(Attempt)) == 1
    store.commit(epoch, Batch(drop=(workload(1),)))
    assert store.load().of(Task) == store.load().of(Attempt) == ()
    assert len(store.events("w-1")) == 1  # history outlives it


def test_settings_are_replaced_one_by_one(store: Database) -> None:
    epoch = store.lead()
    store.commit(epoch, Batch(settings={"a": "1", "b": "2"}))
    store.commit(epoch, Batch(settings={"b": "ä\n"}))
    assert store.load().settings == {"a": "1", "b": "ä\n", "serial": "0"}


def test_ended_attempts_and_deleted_workloads_are_remembered_but_not_loaded(store: Database) -> None:
    epoch = store.lead()
    for number in (1, 2, 3):
        store.commit(epoch, running(number))
    over = [attempt(1, ended=50), attempt(2, ended=60), workload(2, deleted=70), workload(3, deleted=70)]
    store.commit(epoch, Batch(put=[*over, attempt(1, 2)]))
    saved = store.load()
    assert [w.id for w in saved.of(Workload)] == ["w-1"]
    assert [t.workload for t in saved.of(Task)] == ["w-1"]
    assert saved.of(Attempt) == (attempt(1, 2),)
    assert [*store.attempts("w-1")] == [attempt(1, ended=50), attempt(1, 2)]
    assert [*store.attempts("w-2")] == [attempt(2, ended=60)]


def test_ended_gives_the_newest_first(store: Database) -> None:
    gone = [workload(n, deleted=d, project=p) for n, d, p in ((1, 9, "p"), (2, 30, "q"), (3, 9, "p"))]
    store.commit(store.lead(), Batch(put=[*gone, workload(4)]))
    assert [w.id for w in store.ended()] == ["w-2", "w-3", "w-1"]
    assert [w.id for w in store.ended("p")] == ["w-3", "w-1"]
    assert [w.id for w in store.ended(limit=1)] == ["w-2"]


def test_attempts_come_in_the_order_of_their_numbers(store: Database) -> None:
    rows = [attempt(1, n, task=t) for t in ("a-0", "b-0") for n in (1, 2, 10)]
    store.commit(store.lead(), Batch(put=[workload(1), *rows[::-1]]))
    assert [a.id for a in store.attempts("w-1")] == [
        AttemptId("w-1", t, n) for t in ("a-0", "b-0") for n in (1, 2, 10)
    ]


def test_attempts_of_several_workloads_are_told_at_once(
    store: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "MOST_NAMED", 2)
    rows = [attempt(n, ended=50) for n in range(1, 6)]
    store.commit(store.lead(), Batch(put=[*(workload(n) for n in range(1, 6)), *rows]))
    assert [a.id.workload for a in store.attempts("w-4", "w-1", "w-9", "w-2")] == ["w-1", "w-2", "w-4"]
    assert [*store.attempts()] == []


def test_history_is_numbered_over_all_subjects_and_read_in_pages(store: Database) -> None:
    epoch = store.lead()
    for at in range(6):
        store.commit(epoch, Batch(events=(event("w-1", at), event("server", at), event("w-1", at, "again"))))
    numbers = [number for number, _ in store.events("w-1")]
    assert len(set(numbers)) == 12 and numbers == sorted(numbers)
    assert [e.message for _, e in store.events("w-1")] == ["said", "again"] * 6
    page = store.events("w-1", limit=5)
    rest = store.events("w-1", after=page[-1][0])
    assert [*page, *rest] == [*store.events("w-1")]
    assert numbers[-1] > store.events("server")[-1][0] > numbers[0]


def test_numbers_of_events_are_never_used_again(store: Database) -> None:
    epoch = store.lead()
    store.commit(epoch, Batch(events=(event("server", 1), event("server", 2))))
    last = store.events("server")[-1][0]
    assert store.prune(10) == 2
    store.commit(epoch, Batch(events=(event("server", 3),)))
    assert store.events("server")[0][0] > last


def test_an_answer_is_remembered_by_its_key(store: Database) -> None:
    answer = Remembered("key", "f", 202, '{"name": "ü"}', 5)
    store.commit(store.lead(), Batch(put=(answer,)))
    assert store.remembered("key") == answer
    assert store.remembered("other") is None


def test_the_highest_serial_outlives_its_workload(store: Database, where: str | Path) -> None:
    epoch = store.lead()
    store.commit(epoch, Batch(put=(workload(7, deleted=1), workload(3))))
    store.commit(epoch, Batch(put=(workload(4),)))
    store.prune(100)
    assert [*store.ended()] == []
    assert store.load().settings["serial"] == reopened(store, where).settings["serial"] == "7"


def test_a_higher_epoch_ends_the_lower_one(store: Database, where: str | Path) -> None:
    first = store.lead()
    store.commit(first, Batch(put=(NODE,)))
    other = open_store(where)
    second = other.lead()
    assert second == first + 1
    with pytest.raises(StaleEpoch, match=f"epoch {first} is over: epoch {second} leads"):
        store.commit(first, Batch(drop=(NODE,), events=(event("server"),)))
    assert store.load().of(Node) == (NODE,) and not store.events("server")
    other.commit(second, Batch(drop=(NODE,)))
    other.close()
    assert store.load().of(Node) == ()


def test_an_epoch_that_was_never_given_out_is_refused(store: Database) -> None:
    epoch = store.lead()
    with pytest.raises(StoreError, match="older copy"):
        store.commit(epoch + 1, Batch(put=(NODE,)))
    assert store.load().of(Node) == ()


def test_a_batch_that_contradicts_is_refused_whole(store: Database) -> None:
    epoch = store.lead()
    with pytest.raises(StoreError, match="contradicts what is there; nothing of it was written"):
        store.commit(epoch, Batch(put=(NODE, task(9)), events=(event("server"),)))  # no workload
    assert store.load().of(Node) == () and not store.events("server")
    store.commit(epoch, Batch(put=(NODE,)))
    assert store.load().of(Node) == (NODE,)


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (Batch(put=(NODE, replace(NODE, name="b", cpu=1.5))), r"Node\.cpu: int expected, found 1\.5"),
        (Batch(put=(NODE, workload(1, serial=2**63))), "serial 9223372036854775808 does not fit"),
        (Batch(put=(NODE,), settings={"a": "\0"}), "value .* cannot be stored"),
        (Batch(put=(NODE,), settings={"\ud800": "a"}), "key .* cannot be stored"),
    ],
)
def test_a_value_that_could_not_be_read_back_is_refused(store: Database, batch: Batch, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        store.commit(store.lead(), batch)
    assert store.load().of(Node) == ()


def test_any_text_survives(store: Database) -> None:
    odd = "\0 \ud800 \U0001f600 '\" \\ \r\n"
    store.commit(store.lead(), Batch(put=(workload(1, user=odd),), events=(event("w-1", message=odd),)))
    assert store.load().of(Workload)[0].user == odd == store.events("w-1")[0][1].message


def test_many_threads_write_and_read(store: Database) -> None:
    """Every batch is stored as a whole, and batches of one transaction become visible together."""
    epoch = store.lead()

    def write(number: int) -> None:
        store.commit(epoch, running(number))

    def read(_: int) -> None:
        saved = store.load()
        assert len(saved.of(Workload)) == len(saved.of(Task)) == len(saved.of(Attempt))

    with ThreadPoolExecutor(8) as pool:
        writes = pool.map(write, range(1, 61))
        reads = pool.map(read, range(20))
        assert [*writes, *reads] == [None] * 80
    assert {w.id for w in store.load().of(Workload)} == {f"w-{n}" for n in range(1, 61)}
    assert store.load().settings["serial"] == "60"


def test_a_leader_renews_and_what_it_writes_is_counted(store: Database, where: str | Path) -> None:
    epoch = store.lead()
    first = store.seen()
    assert first.epoch == epoch
    store.renew(epoch)
    store.commit(epoch, Batch(put=(NODE,)))
    other = open_store(where)
    assert other.seen() == replace(first, renewed=first.renewed + 1, revision=first.revision + 1)
    other.close()


def test_the_lead_of_one_that_is_silent_is_taken_once(store: Database) -> None:
    epoch = store.lead()
    seen = store.seen()
    store.renew(epoch)
    assert store.claim(seen) is None  # it has renewed since
    seen = store.seen()
    assert store.claim(seen) == epoch + 1
    assert store.claim(seen) is None  # another server was faster
    with pytest.raises(StaleEpoch, match=f"epoch {epoch} is over"):
        store.renew(epoch)
    store.renew(epoch + 1)


def test_a_closed_store_says_so(store: Database) -> None:
    epoch = store.lead()
    store.close()
    for call in (store.load, store.lead, lambda: store.commit(epoch, Batch())):
        with pytest.raises(StoreClosed, match="closed"):
            call()


def test_loading_takes_time_in_proportion(store: Database) -> None:
    """Ten times the rows take at most thirty times as long; benchmarks measure the seconds."""

    def best() -> float:
        took = []
        for _ in range(5):
            began = time.process_time()  # excludes other processes
            store.load()
            took.append(time.process_time() - began)
        return min(took)

    epoch = store.lead()
    batches = [running(number) for number in range(1, 501)]
    store.commit(epoch, Batch(put=[row for batch in batches[:50] for row in batch.put]))
    few = best()
    store.commit(epoch, Batch(put=[row for batch in batches[50:] for row in batch.put]))
    assert len(store.load().of(Attempt)) == 500
    assert best() < 30 * few


def test_a_row_of_an_unknown_kind_is_refused_and_nothing_of_its_batch_is_written(store: Database) -> None:
    epoch = store.lead()
    for batch in (Batch(put=(NODE, HERE)), Batch(put=(NODE,), drop=(HERE,))):  # type: ignore[arg-type]
        with pytest.raises(UnknownKind, match="a Placement is no row"):
            store.commit(epoch, batch)
    assert store.load().rows == []


def test_a_stored_row_that_no_class_takes_is_named(store: Database) -> None:
    store.commit(store.lead(), Batch(put=(workload(1), workload(2))))
    with store._link.writing(durable=True) as connection:
        body = connection.exec_driver_sql("SELECT body FROM workloads WHERE id = 'w-2'").scalar_one()
        other = body.replace('"Training"', '"Dream"')
        assert other != body
        connection.execute(schema.workloads.update().where(schema.workloads.c.id == "w-2").values(body=other))
    with pytest.raises(
        StoreError, match=r"row w-2 of workloads cannot be read: .*'Dream'\. Restore a backup"
    ):
        store.load()
