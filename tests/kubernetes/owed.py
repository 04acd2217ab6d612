"""What the nodes, which KWOK plays, were asked to do and have not done: time that no server can save."""

import time

PATIENCE = 2.0  # seconds, far above what KWOK needs when it listens


class Owed:
    def __init__(self) -> None:
        self.seconds = 0.0  # in which something was owed for longer than PATIENCE
        self.told: list[str] = []
        self._since: dict[tuple[str, str], float] = {}
        self._last = time.monotonic()

    def look(self, pods: list[dict], nodes: set[str]) -> None:
        """`pods`: all that are there now, as the API server shows them."""
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
