"""Parts of devices: how a request becomes shares of the devices of one node."""

from operator import itemgetter

from pliant.model.machine import Share
from pliant.model.workload import Request
from pliant.sched.world.device_share import amounts, share_on
from pliant.sched.world.nodes import Device, NodeState


def whole_devices(node: NodeState, count: int) -> list[Device] | None:
    """`count` free devices: those that no task carries first, then by index; None if there are too few."""
    if node.free < count:
        return None
    found: list[Device] = []
    waiting: list[Device] = []
    for device in node.devices.values():
        if device.claimed or device.claimed_memory or device.gpu.foreign:
            continue
        (waiting if device.held or device.held_memory else found).append(device)
        if len(found) == count:
            return found
    return (found + waiting)[:count]


def shared_devices(
    node: NodeState, request: Request, spread: bool = False
) -> list[tuple[Device, Share]] | None:
    """Devices for a fraction: shared ones first (usable now, then most used), then unused; None if too few.

    With `spread`: unused ones first, then the least used.
    """
    found: list[tuple[tuple[bool, bool, int, int], Device]] = []
    owner = request.owner
    for device in node.devices.values():
        portion, memory = amounts(device.gpu, request)
        if device.takes(portion, memory, owner):
            now = device.takes_now(portion, memory, owner)
            used = device.claimed if spread else -device.claimed
            found.append((((device.claimed == 0) is not spread, not now, used, device.gpu.index), device))
    if len(found) < request.devices:
        return None
    found.sort(key=itemgetter(0))
    return [(device, share_on(device.gpu, request)) for _, device in found[: request.devices]]
