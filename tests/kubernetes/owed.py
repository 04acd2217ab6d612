"""Measures how late KWOK's nodes are with what they were asked to do: no server can save that time."""

import time

PATIENCE = 2.0  # seconds, far more than KWOK needs while it is connected


class Owed:
    def __init__(self) -> None:
        self.seconds = 0.0  # in which a node was late by more than PATIENCE
        self.told: list[str] = []
        self._since: dict[tuple[str, str], float] = {}
        self._last = time.monotonic()

    def look(self, pods: list[dict], nodes: set[str]) -> None:
        """`pods`: all present pods, as the API server shows them."""
        now = time.monotonic()
        asked = {}
        for pod in pods:
            metadata = pod["metadata"]
            if pod["spec"].get("nodeName") not in nodes or metadata.get("deletionGracePeriodSeconds") == 0:
                continue
            if "deletionTimestamp" in metadata:
                asked[metadata["uid"], "end"] = metadata["name"]
            elif pod["status"].get("phase") == "Pending":
                asked[metadata["uid"], "run"] = metadata["name"]
        for key in set(self._since) - set(asked):
            waited = now - self._since.pop(key)
            if waited > PATIENCE:
                self.told.append(f"{key[1]} {key[0]} took the nodes {waited:.1f} s")
        self._since = {key: self._since.get(key, now) for key in asked}
        if any(now - since > PATIENCE for since in self._since.values()):
            self.seconds += now - self._last
        self._last = now
