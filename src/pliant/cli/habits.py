"""Commands of other tools: what to type here instead. docs/reference/habits.md lists them for people."""

from __future__ import annotations

from collections.abc import Sequence

_INSTEAD = {
    # Run:ai
    "compute": "`pliant submit NAME -g GPUS --cpu CORES --memory AMOUNT -- COMMAND`",
    "datasource": "`pliant submit NAME --working-dir DIR -- COMMAND`",
    "diagnostics": "`pliant debug bundle`",
    "distributed": "`pliant training pytorch submit NAME --workers N -- COMMAND`",
    "environment": "`pliant submit NAME --image IMAGE -- COMMAND`",
    "kubeconfig": "`pliant login`",
    "my-credential": "`pliant submit NAME --secret VARIABLE -- COMMAND`",
    "pvc": "`pliant submit NAME --working-dir DIR -- COMMAND`",
    "template": "`pliant submit --help`",
    "update": "`pip install --upgrade pliant`",
    "upgrade": "`pip install --upgrade pliant`",
    "workload-type": "`pliant submit --help`",
    # any shell
    "kill": "`pliant cancel {names}`",
    "ps": "`pliant list`",
    "stop": "`pliant cancel {names}` to end it or `pliant suspend {names}` to free its GPUs for now",
    # kubectl
    "cordon": "`pliant node cordon {names}`",
    "create": "`pliant submit NAME -- COMMAND` or `pliant project create NAME --quota N`",
    "drain": "`pliant node drain {names}`",
    "edit": "`pliant describe job NAME -o yaml` to read it; to change it, delete it and submit it again",
    "rollout": "`pliant suspend NAME` and then `pliant resume NAME`",
    "scale": "`pliant submit NAME -g GPUS --elastic -- COMMAND`",
    "uncordon": "`pliant node uncordon {names}`",
    # Slurm
    "sacct": "`pliant history`",
    "salloc": "`pliant submit NAME --interactive -g GPUS -- sleep infinity` and then `pliant bash NAME`",
    "sbatch": "`pliant submit NAME -g GPUS -- bash SCRIPT`",
    "scancel": "`pliant cancel {names}`",
    "sinfo": "`pliant get nodes`",
    "squeue": "`pliant list` for all jobs or `pliant queue` for those that wait",
    "srun": "`pliant run -g GPUS -- COMMAND`",
}
"""The word that was typed, and what to use; {names} are the words after it that are no options."""


def instead(word: str, args: Sequence[str]) -> str | None:
    """The sentence that names the command to type instead of `pliant WORD ARGS`; None for other words."""
    cure = _INSTEAD.get(word)
    if cure is None:
        return None
    names = " ".join(arg for arg in args if not arg.startswith("-")) or "NAME"
    return f"Pliant has no command '{word}'. Use {cure.format(names=names)}."
