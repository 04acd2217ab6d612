"""gpu.conf of pods with parts of GPUs: the text that a server writes and a kubelet shows to the pod."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pliant.control.fractions import Enforcement, How, Sharing
from pliant.devices.config import GRAIN, GpuConf, Grant, check, parse, portion_bytes, render
from pliant.devices.lending import shares_of
from pliant.devices.observer import Watched
from pliant.model.order import Start
from pliant.model.workload import AttemptId


def pod_conf(order: Start, uuids: Mapping[str, str], memory: Mapping[str, int], ledger: str) -> str:
    """The first text of a pod: its limits are what it requested, the hardware shares the time. `uuids` and
    `memory` (bytes) are by device of its placement. Raises ValueError."""
    workload, task = order.workload, order.attempt.task
    request = workload.group(task.rpartition("-")[0]).request
    grants, usable = [], {}
    for share in order.placement.shares:
        if not share.memory or not memory.get(share.gpu):
            raise ValueError("the memory of its GPUs is not known: install NVIDIA's GPU feature discovery")
        uuid, size = uuids[share.gpu], memory[share.gpu]
        limit = share.memory if request.gpu_memory else share.memory // GRAIN * GRAIN
        most = min(request.gpu_memory_limit or portion_bytes(size, request.portion_limit), size)
        usable[uuid], weight = size, max(1, min(1000, share.portion))
        grants.append(Grant(uuid, limit, limit, weight, most=most if most > limit else 0))
    conf = GpuConf(str(order.attempt), Path(ledger), tuple(grants))
    check(conf, usable)
    return render(conf)


def pod_limits(confs: Mapping[AttemptId, str], uuid: str, usable: int) -> Mapping[AttemptId, str]:
    """The new texts of the pods that share that GPU: of its `usable` bytes each has what it requested, and
    its part of what no pod requested. Only texts that change are returned."""
    living = {}
    for attempt, text in confs.items():
        conf = parse(text)
        claims = {grant.uuid: grant.request for grant in conf.grants}
        living[attempt] = Watched(Path(), conf, Enforcement(How.COOPERATIVE), claims, {uuid: usable})
    found = {}
    for attempt, wanted in shares_of(living, (uuid,)).items():
        conf = living[attempt].conf
        grants = tuple(replace(each, limit=wanted.get(each.uuid, each.limit)) for each in conf.grants)
        if grants != conf.grants:
            found[attempt] = render(replace(conf, grants=grants, epoch=conf.epoch + 1))
    return found


def lends(conf: str) -> bool:
    """True if that pod may use more than it requested."""
    return any(grant.most for grant in parse(conf).grants)


def keeps_to(conf: str, said: str) -> bool:
    """True if a pod has read its limits and uses no more; `said` is what pliant-gpu-used prints."""
    lines, wanted = said.splitlines(), parse(conf)
    try:
        heard = parse("\n".join([*(line for line in lines if not line.startswith("used ")), ""]))
        told = (line.split(" ") for line in lines if line.startswith("used "))
        used = {uuid: int(amount) for _, uuid, amount in told}
    except ValueError:
        return False
    return heard.epoch >= wanted.epoch and all(
        used.get(grant.uuid.split("-", 1)[-1], 0) <= grant.limit for grant in wanted.grants
    )


def sharing(image: str) -> Sharing:
    return Sharing(image, pod_conf, pod_limits, lends, keeps_to)
