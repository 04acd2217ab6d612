"""How fast the scripts of tests train."""

from __future__ import annotations

import os
import time
from typing import Any


def slowly(job: Any, spec: dict[str, Any], records: int) -> None:
    """While the test does things to the job. Its second half takes a second per step, so that it does not end
    before the test is through."""
    half = 2 * job.applied > job.settings["steps_total"]
    seconds = (spec.get("slow_s", 0.05) + half * job.size) * records / spec.get("batch", 32)
    until = time.monotonic() + seconds
    while os.path.exists(os.path.join(spec["out"], "..", "slow")) and time.monotonic() < until:
        time.sleep(min(seconds, 0.05))
