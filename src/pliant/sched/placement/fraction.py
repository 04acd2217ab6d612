"""Parts of devices: how a request becomes shares of the devices of one node."""

from pliant.model.machine import Share
from pliant.model.workload import Request
from pliant.sched.world.device_share import share_on
from pliant.sched.world.nodes import Device, NodeState


def whole_devices(node: NodeState, count: int) -> list[Device] | None:
    """Free devices, those that nobody carries either first, then by index; None if there are too few."""
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
    found: list[tuple[tuple[bool, bool, int, int], Device, Share]] = []
    for device in node.devices.values():
        if device.gpu.foreign:
            continue
        share = share_on(device.gpu, request)
        if device.room(share):
            now = device.room_now(share)
            used = device.claimed if spread else -device.claimed
            key = ((device.claimed == 0) is not spread, not now, used, device.gpu.index)
            found.append((key, device, share))
    if len(found) < request.devices:
        return None
    found.sort(key=lambda entry: entry[0])
    return [(device, share) for _, device, share in found[: request.devices]]
