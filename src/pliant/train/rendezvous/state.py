"""A job's state as JSON and plain tensors, for checkpoints, for new workers and for comparison."""

import hashlib
import json
from typing import Any

import torch

from pliant.train.errors import BadSettings
from pliant.train.rendezvous.group import ElasticGroup

_CHUNK = 32 << 20  # bytes per broadcast
_ALIGN = 16


def pack(tree: Any, tensors: list[torch.Tensor], where: str = "state") -> Any:
    """JSON for the tree; tensors are appended to the list. Raises BadSettings for any other type."""
    if isinstance(tree, torch.Tensor):
        tensors.append(tree.detach())
        return {"t": len(tensors) - 1}
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return tree
    if isinstance(tree, dict):
        return {"d": [[pack(k, tensors, where), pack(v, tensors, f"{where}.{k}")] for k, v in tree.items()]}
    if isinstance(tree, (list, tuple)):
        name = "l" if isinstance(tree, list) else "u"
        return {name: [pack(v, tensors, f"{where}[{i}]") for i, v in enumerate(tree)]}
    if hasattr(tree, "item") and getattr(tree, "shape", None) == ():  # a NumPy scalar
        return tree.item()
    raise BadSettings(
        f"{where} is a {type(tree).__name__}, which a checkpoint without pickle cannot carry: "
        "keep numbers, strings, lists, dicts and tensors in state_dict()."
    )


def unpack(tree: Any, tensors: list[torch.Tensor]) -> Any:
    """The inverse of `pack`."""
    if not isinstance(tree, dict):
        return tree
    ((kind, value),) = tree.items()
    if kind == "t":
        return tensors[value]
    if kind == "d":
        return {unpack(k, tensors): unpack(v, tensors) for k, v in value}
    found = [unpack(v, tensors) for v in value]
    return found if kind == "l" else tuple(found)


def fingerprint(model: torch.nn.Module) -> str:
    """A hash of names, shapes and types: equal for two builds of one model, whatever their weights."""
    lines = [f"{name} {tuple(t.shape)} {t.dtype}" for name, t in sorted(model.state_dict().items())]
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()


def digest(model: torch.nn.Module) -> str:
    """A hash of every bit of the weights and buffers."""
    found = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        found.update(name.encode())
        found.update(_raw(tensor).cpu().numpy().tobytes())
    return found.hexdigest()


def _raw(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def exchange(group: ElasticGroup, source: int, tree: Any, device: torch.device) -> Any:
    """Returns the source's tree on every rank; the others pass None. Raises GenerationOver."""
    sends = group.rank_now == source
    tensors: list[torch.Tensor] = []
    plain = b""
    if sends:
        packed = pack(tree, tensors)
        shapes = [[list(t.shape), str(t.dtype).removeprefix("torch.")] for t in tensors]
        plain = json.dumps([packed, shapes]).encode()
    length = torch.tensor([len(plain)], dtype=torch.int64, device=device)
    group.send(length, source)
    text = torch.zeros(int(length.item()), dtype=torch.uint8, device=device)
    if sends:
        text.copy_(torch.frombuffer(bytearray(plain), dtype=torch.uint8))
    group.send(text, source)
    packed, shapes = json.loads(bytes(text.cpu().numpy().tobytes()))
    places, total = [], 0
    for shape, dtype in shapes:
        count = torch.Size(shape).numel() * torch.empty(0, dtype=getattr(torch, dtype)).element_size()
        places.append((total, count))
        total += -(-count // _ALIGN) * _ALIGN
    buffer = torch.zeros(total, dtype=torch.uint8, device=device)
    for tensor, (start, count) in zip(tensors, places, strict=False):
        buffer[start : start + count].copy_(_raw(tensor))
    for start in range(0, total, _CHUNK):
        group.send(buffer[start : start + _CHUNK], source)
    if sends:
        return tree
    found = [
        buffer[start : start + count].view(getattr(torch, dtype)).reshape(shape)
        for (start, count), (shape, dtype) in zip(places, shapes, strict=True)
    ]
    return unpack(packed, found)
