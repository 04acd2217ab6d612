"""Named points at which a crash test ends or stops the server."""

import os
import signal
import time


class Halts:
    """Kills or stops this process at a named point: `PLIANT_HALT=recorded:start#2` (the second time there),
    `...=stop` after a comma for SIGSTOP. For crash tests; does nothing when unset."""

    def __init__(self, text: str) -> None:
        point, _, how = text.partition(",")
        self._point, _, count = point.partition("#")
        self._left = int(count or 1)
        self._signal = signal.SIGSTOP if how == "stop" else signal.SIGKILL

    def __call__(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), self._signal)
                time.sleep(0.5)  # a thread that stops its own process may run on for a moment
