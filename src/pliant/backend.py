"""What a server schedules on: GPUs of this machine, simulated ones or a cluster, with the engine for them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pliant.api.identity.auth import attempt_token
from pliant.control.clock import SteadyClock
from pliant.control.halts import Halts
from pliant.control.ports import Engine, Saved
from pliant.devices.discovery import Elsewhere, Found, find_devices
from pliant.devices.handout import Handout
from pliant.devices.place import Place
from pliant.devices.pods import sharing
from pliant.engines.kube.make import kube_admission, kube_engine, kube_epoch, kube_trouble
from pliant.engines.local.engine import LocalEngine
from pliant.engines.local.launcher import BoxLauncher, OwnLauncher
from pliant.engines.local.layout import Layout
from pliant.engines.local.processes import owner_of
from pliant.model.machine import Cluster
from pliant.model.workload import AttemptId
from pliant.options import Options
from pliant.sched.world.state import World
from pliant.shared import WallsAlone
from pliant.store.recovery import remember


@dataclass(frozen=True, slots=True)
class Backend:
    engine: Engine
    found: Found
    owner: Callable[[int], AttemptId | None]  # the attempt that a process of this machine belongs to
    kubeconfig: str  # empty: not a cluster
    kept: Mapping[str, str]  # settings with which the next server finds the same
    admit: Callable[[dict[str, Any]], dict[str, Any]] | None = None  # about pods; None: not a cluster
    above: int = 0  # the highest epoch that was seen where the tasks are
    trouble: Callable[[], str] = str  # what keeps the engine from its work, for people; empty: nothing


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an engine asks of its server; nothing of it is called before the server has opened."""

    url: Callable[[], str]  # at which tasks reach the server
    authority: str  # file with the certificates by which tasks know it; empty: it speaks plainly
    secret: bytes  # signs the tokens of attempts
    world: Callable[[], World]
    project_name: Callable[[str], str]  # by its id
    report: Callable[[AttemptId, str], None]  # what the node noticed about a task


def make_backend(
    options: Options,
    saved: Saved,
    cluster: Cluster,
    launcher: BoxLauncher | OwnLauncher,
    clock: SteadyClock,
    halts: Halts,
    around: Surroundings,
) -> Backend:
    """What `options` name, and else what the last server used. Raises ValueError."""
    specs = options.simulate or tuple(json.loads(saved.settings.get("simulate", "[]")))
    kubeconfig = str(options.kubeconfig or (not specs and saved.settings.get("kubeconfig")) or "")
    scheduler = options.scheduler or saved.settings.get("scheduler", "")
    image = options.share_image or saved.settings.get("share-image", "")
    images = options.images or tuple(json.loads(saved.settings.get("images", "[]")))
    kept = {"simulate": json.dumps([*specs]), "kubeconfig": kubeconfig, "scheduler": scheduler}
    kept |= {"share-image": image, "images": json.dumps([*images])}
    layout = Layout(options.state)
    owner = launcher.attempt_of if isinstance(launcher, BoxLauncher) else partial(owner_of, layout)
    if kubeconfig:
        project, now = around.project_name, clock.now
        parts = sharing(image) if image else None
        engine: Engine = kube_engine(kubeconfig, cluster.uuid, scheduler, project, now, parts, images)
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
        rows=lambda start: remember(start, around.world(), cluster.uuid),
    )
    return Backend(engine, found, owner, kubeconfig, kept)
