"""When a workload will start, or why that is not known."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A range of time with its basis, or the code of why there is none."""

    earliest: int | None = None  # ms since the epoch
    latest: int | None = None
    basis: str = ""  # declared | past | wait (for a time that is known)
    unknown: str = (
        ""  # no-run-times | some-run-times | stuck | not-waiting | background; empty if there is a range
    )
    undeclared: int = 0  # running jobs whose run time is not known

    @property
    def known(self) -> bool:
        return self.earliest is not None

    @property
    def unknown_text(self) -> str:
        """Why there is no range, as the rest of 'Estimated start: unknown; ...'; empty if there is one."""
        return {
            "": "",
            "no-run-times": "no running job has --max-runtime.",
            "some-run-times": f"{self._jobs()} no --max-runtime.",
            "stuck": "it does not start when the running jobs end, something else must change.",
            "not-waiting": "it is not waiting for resources.",
            "background": "it starts when enough GPUs are idle.",
        }[self.unknown]

    def _jobs(self) -> str:
        return "1 running job has" if self.undeclared == 1 else f"{self.undeclared} running jobs have"
