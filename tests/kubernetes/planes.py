"""Control planes that each serve one test at a time: emptied between tests, as a new start takes 5 s."""

import base64
import json
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.kubernetes.control_plane import ControlPlane, shared, until

BEGIN, END = "/registry/", "/registry0"
"""The range of objects' keys, without `compact_rev_key`: an API server makes it after 5 minutes, and ends if
it is gone."""

AT_ONCE = 100
"""Changes in one transaction; etcd takes 128."""

LEASES = "/registry/leases/"
"""Nodes and the API server write these all the time."""

Kept = dict[str, tuple[str, str]]
"""All objects in etcd: key -> (value, revision of its last change)."""


class Planes:
    """The control planes of one process."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._open = folder, ExitStack()
        self._free: dict[tuple[str, ...], list[Empty]] = {}

    @contextmanager
    def own(self, *words: str) -> Iterator[ControlPlane]:
        """An empty control plane for this test alone; `words` go to the keeper."""
        free = self._free.setdefault(words, [])
        while free and free[-1].plane.ended():
            said = free.pop().plane.last_words()
            print(f"A control plane ended between two tests: {said}", file=sys.__stderr__, flush=True)
        if not free:
            number = sum(1 for _ in self._folder.iterdir())
            free.append(Empty(self._open.enter_context(shared(self._folder / str(number), *words))))
        one = free.pop()
        yield one.plane
        one.empty()
        free.append(one)  # not reached if the test fails

    def close(self) -> None:
        self._open.close()


class Empty:
    """A control plane, and its state before any test used it."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self._seen: list[object] = []
        self._before = until(self._settled, "a new API server has made all that it makes")
        self._groups = self._served()

    def empty(self) -> None:
        """Deletes what was made and restores what was changed, directly in etcd."""
        until(self._is_empty, "the API server knows that all is gone")

    def _is_empty(self) -> bool:
        now = self._all()
        gone = [key for key in now if key not in self._before]
        changed = [
            key
            for key, (value, _) in self._before.items()
            if not key.startswith(LEASES) and now.get(key, ("", ""))[0] != value
        ]
        changes = [{"requestDeleteRange": {"key": word(key)}} for key in gone]
        changes += [{"requestPut": {"key": word(key), "value": self._before[key][0]}} for key in changed]
        for at in range(0, len(changes), AT_ONCE):
            etcd(self.plane, "kv/txn", {"success": changes[at : at + AT_ONCE]})
        left = [key for key in (*gone, *changed) if not key.startswith(LEASES)]
        nodes = self.plane.request("GET", "/api/v1/nodes")["items"]
        return not left and not nodes and self._served() == self._groups

    def _settled(self) -> Kept | None:
        """All that it holds, once the last SAME looks saw no change; None before."""
        now = self._all()
        self._seen.append({key: value for key, value in now.items() if not key.startswith(LEASES)})
        return now if len(self._seen) > SAME and self._seen[-1] == self._seen[-1 - SAME] else None

    def _served(self) -> set[str]:
        return {group["name"] for group in self.plane.request("GET", "/apis")["groups"]}

    def _all(self) -> Kept:
        said = etcd(self.plane, "kv/range", {"key": word(BEGIN), "range_end": word(END)})
        found = said.get("kvs", ())
        return {
            base64.b64decode(each["key"]).decode(): (each.get("value", ""), each["mod_revision"])
            for each in found
        }


def etcd(plane: ControlPlane, path: str, body: object) -> dict[str, list[dict[str, str]]]:
    asked = urllib.request.Request(f"{plane.etcd}/v3/{path}", json.dumps(body).encode())
    with urllib.request.urlopen(asked, timeout=60) as answer:
        said: dict[str, list[dict[str, str]]] = json.loads(answer.read())
    return said


SAME = 5
"""Looks without a change after which a new API server counts as settled."""


def word(key: str) -> str:
    return base64.b64encode(key.encode()).decode()
