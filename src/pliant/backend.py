"""Chooses what a server schedules on (this machine's GPUs, simulated ones, a cluster), and its engine."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pliant.api.identity.auth import attempt_token
from pliant.control.clock import SteadyClock
from pliant.control.halts import Halts
from pliant.control.ports import Engine, Saved, Store
from pliant.devices.discovery import Elsewhere, Found, find_devices
from pliant.devices.handout import Handout
from pliant.devices.place import Place
from pliant.devices.pods import sharing
from pliant.engines.kube.make import kube_admission, kube_engine, kube_epoch, kube_left, kube_trouble
from pliant.engines.local.engine import LocalEngine
from pliant.engines.local.folder.layout import Layout
from pliant.engines.local.launch.launcher import BoxLauncher, OwnLauncher
from pliant.engines.local.observe.processes import owner_of
from pliant.model.machine import Cluster
from pliant.model.order import Start
from pliant.model.workload import Attempt, AttemptId
from pliant.options import Options
from pliant.sched.world.state import World
from pliant.shared import WallsAlone
from pliant.store.adoption import kept as left_of
from pliant.store.recovery import ADOPT, END, remember, take_in

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Backend:
    engine: Engine
    found: Found
    owner: Callable[[int], AttemptId | None]  # the attempt that a process of this machine belongs to
    kubeconfig: str  # empty: not a cluster
    kept: Mapping[str, str]  # settings that make the next server use the same backend
    admit: Callable[[dict[str, Any]], dict[str, Any]] | None = None  # admission of pods; None: not a cluster
    above: int = 0  # the highest epoch seen where the tasks run
    trouble: Callable[[], str] = str  # what keeps the engine from working, for people; empty: nothing


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an engine needs of its server; none of it is called before the server has opened."""

    url: Callable[[], str]  # the address at which tasks reach the server
    authority: str  # file with the certificates by which tasks verify the server; empty: no TLS
    secret: bytes  # signs the tokens of attempts
    world: Callable[[], World]
    project_name: Callable[[str], str]  # from the project's id
    report: Callable[[AttemptId, str], None]  # what the node noticed about a task


def take_in_pods(store: Store, saved: Saved, options: Options, now: int) -> Saved:
    """Returns the store's rows, with the unknown pods of its cluster taken in if `options` say so.

    Raises StoreError, ValueError.
    """
    _, kubeconfig, scheduler = _where(options, saved)
    name = saved.cluster.uuid if saved.cluster is not None else ""
    if not kubeconfig or (name and options.unknown != ADOPT):
        return saved  # the engine ends pods that carry its name and are not known
    if options.unknown == END:
        cure = "kubectl delete pods --all-namespaces -l pliant/cluster=NAME"
        raise ValueError(f"--end is for tasks of this machine. On a cluster: {cure}.")
    known, whole = frozenset(row.id for row in saved.of(Attempt)), options.unknown == ADOPT
    try:
        left = kube_left(kubeconfig, scheduler, name, known, whole=whole)
    except ValueError:
        if whole:
            raise
        return saved  # several servers are no error; the engine reports an unreachable cluster
    if not whole and (left.attempts or left.cluster):
        said = "%d tasks and %d objects of another server are on this cluster. If its database is lost: %s"
        objects = sum(one.spec is None for one in left.objects)
        log.warning(said, len(left.attempts), objects, "`pliant up --adopt`")
    elif whole and (left.attempts or left.found or left.cluster != name):
        return take_in(store, left, saved, now)
    return saved


def _where(options: Options, saved: Saved) -> tuple[tuple[str, ...], str, str]:
    """(what is simulated, the kubeconfig or "" without a cluster, the scheduler's name on the cluster)."""
    specs = options.simulate or tuple(json.loads(saved.settings.get("simulate", "[]")))
    kubeconfig = str(options.kubeconfig or (not specs and saved.settings.get("kubeconfig")) or "")
    return specs, kubeconfig, options.scheduler or saved.settings.get("scheduler", "")


def make_backend(
    options: Options,
    saved: Saved,
    cluster: Cluster,
    launcher: BoxLauncher | OwnLauncher,
    clock: SteadyClock,
    halts: Halts,
    around: Surroundings,
) -> Backend:
    """The backend that `options` name; what they leave out is as with the last server. Raises ValueError."""
    specs, kubeconfig, scheduler = _where(options, saved)
    image = options.share_image or saved.settings.get("share-image", "")
    images = options.images or tuple(json.loads(saved.settings.get("images", "[]")))
    kept = {"simulate": json.dumps([*specs]), "kubeconfig": kubeconfig, "scheduler": scheduler}
    kept |= {"share-image": image, "images": json.dumps([*images])}
    layout = Layout(options.state)

    def rows(start: Start) -> dict[str, Any]:
        return remember(start, around.world(), cluster.uuid)

    owner = launcher.attempt_of if isinstance(launcher, BoxLauncher) else partial(owner_of, layout)
    if kubeconfig:
        project, now = around.project_name, clock.now
        parts = sharing(image) if image else None
        means = (scheduler, project, now, parts, images, rows, left_of)
        engine: Engine = kube_engine(kubeconfig, cluster.uuid, *means)
        asked = kube_admission(scheduler, image, engine)
        above, trouble = kube_epoch(kubeconfig, cluster.uuid), kube_trouble(engine)
        return Backend(engine, Found(Elsewhere()), owner, kubeconfig, kept, asked, above, trouble)
    if options.images or options.share_image:
        raise ValueError("--image and --share-image are for clusters: add --kubeconfig FILE.")
    found = find_devices(specs, cluster.uuid, lambda pid: owner(pid) is not None)
    shares = Handout(Place(layout.state), seen=found.processes, owner=owner, report=around.report)
    engine = LocalEngine(
        options.state,
        found.devices,
        url=around.url,
        authority=around.authority,
        token=lambda attempt: attempt_token(str(attempt), around.secret),
        project_name=around.project_name,
        clock=clock.now,
        halt=halts,
        occupants=shares.on_cards,
        cards=found.loads,
        fractions=WallsAlone() if options.box else shares,
        launcher=launcher,
        environ=options.box.environ if options.box else None,
        rows=rows,
    )
    return Backend(engine, found, owner, kubeconfig, kept)
