"""How fast the scripts of tests train."""

from __future__ import annotations

import os
import time
from typing import Any


def slowly(job: Any, spec: dict[str, Any], records: int) -> None:
    """Slows a step down while the test acts on the job. The second half adds a second per step and the last
    quarter 20, so that the job does not end before the test has finished with it on any machine."""
    done = job.applied / job.settings["steps_total"]
    pause = 20.0 if done > 0.75 else 1.0 if done > 0.5 else 0.0
    seconds = (spec.get("slow_s", 0.05) + pause * job.size) * records / spec.get("batch", 32)
    until = time.monotonic() + seconds
    while os.path.exists(os.path.join(spec["out"], "..", "slow")) and time.monotonic() < until:
        time.sleep(min(seconds, 0.05))
