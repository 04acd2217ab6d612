"""Commands of other tools: what to type here instead. docs/reference/habits.md lists them for people."""

from __future__ import annotations

import re
from collections.abc import Sequence

_INSTEAD = {
    # Run:ai
    "compute": "`pliant submit NAME -g GPUS --cpu CORES --memory AMOUNT -- COMMAND`",
    "config describe": "`pliant whoami` to see what is set",
    "config generate": "`pliant login --server URL`",
    "config set": "`pliant project set NAME` or `pliant cluster set NAME`",
    "datasource": "`pliant submit NAME --working-dir DIR -- COMMAND`",
    "diagnostics": "`pliant debug bundle`",
    "distributed": "`pliant training pytorch submit NAME --workers N -- COMMAND`",
    "environment": "`pliant asset list environment`",
    "inference distributed": "`pliant inference submit NAME -i IMAGE --serving-port PORT -- COMMAND`",
    "inference nim": "`pliant inference submit NAME -i IMAGE --serving-port PORT -- COMMAND`",
    "inference scale": "`pliant inference delete NAME`, then `pliant inference submit NAME --max-replicas N`",
    "inference update": "`pliant inference delete NAME` and then `pliant inference submit NAME`",
    "kubeconfig": "`pliant login`",
    "mj": "`pliant submit-mpi NAME --processes N -- COMMAND`",
    "my-credential": "`pliant submit NAME --secret VARIABLE -- COMMAND`",
    "pvc": "`pliant submit NAME --working-dir DIR -- COMMAND`",
    "template": "`pliant asset list training-template`",
    "update": "`pip install --upgrade pliant`",
    "upgrade": "`pip install --upgrade pliant`",
    "workload-type": "`pliant submit --help`",
    # any shell
    "jobs": "`pliant list`",
    "kill": "`pliant cancel {names}`",
    "ls": "`pliant list`",
    "ps": "`pliant list`",
    "rm": "`pliant delete {names}`",
    "start": "`pliant resume {names}` for a suspended job or `pliant submit NAME -- COMMAND` for a new one",
    "stop": "`pliant cancel {names}` to end it or `pliant suspend {names}` to free its GPUs for now",
    # kubectl
    "annotate": "`pliant submit NAME --annotation KEY=VALUE -- COMMAND`",
    "api-resources": "`pliant help`",
    "auth can-i": "`pliant whoami`",
    "cluster-info": "`pliant status`",
    "config get-contexts": "`pliant cluster list`",
    "config use-context": "`pliant cluster set {names}`",
    "config view": "`pliant whoami`",
    "cordon": "`pliant node cordon {names}`",
    "cp": "`pliant describe NAME` to see the folders of a job, and `cp` on its node",
    "create": "`pliant submit NAME -- COMMAND` or `pliant project create NAME --quota N`",
    "drain": "`pliant node drain {names}`",
    "describe pod": "`pliant describe job NAME`",
    "describe pods": "`pliant get pods` or `pliant describe job NAME`",
    "edit": "`pliant describe job NAME -o yaml` to read it; to change it, delete it and submit it again",
    "events": "`pliant describe job NAME` or `pliant cluster events`",
    "explain": "`pliant why NAME` or `pliant help COMMAND`",
    "expose": "`pliant port-forward NAME --port LOCAL:PORT`",
    "get all": "`pliant get jobs`",
    "get events": "`pliant describe job NAME` or `pliant cluster events`",
    "get namespaces": "`pliant get projects`",
    "get ns": "`pliant get projects`",
    "label": "`pliant node label NODE KEY=VALUE`",
    "patch": "`pliant describe job NAME -o yaml` to read it; to change it, delete it and submit it again",
    "replace": "`pliant describe job NAME -o yaml` to read it; to change it, delete it and submit it again",
    "rollout": "`pliant suspend NAME` and then `pliant resume NAME`",
    "scale": "`pliant submit NAME -g GPUS --elastic -- COMMAND`",
    "taint": "`pliant node taint NODE KEY=VALUE:EFFECT`",
    "uncordon": "`pliant node uncordon {names}`",
    # Slurm
    "sacct": "`pliant history`",
    "sacctmgr": "`pliant project list` or `pliant user list`",
    "salloc": "`pliant submit NAME --interactive -g GPUS -- sleep infinity` and then `pliant bash NAME`",
    "sattach": "`pliant attach {names}`",
    "sbatch": "`pliant submit NAME -g GPUS -- bash SCRIPT`",
    "scancel": "`pliant cancel {names}`",
    "scontrol": "`pliant describe job NAME`, `pliant suspend NAME` or `pliant resume NAME`",
    "sinfo": "`pliant get nodes`",
    "sprio": "`pliant queue`",
    "squeue": "`pliant list` for all jobs or `pliant queue` for those that wait",
    "sreport": "`pliant audit fairness`",
    "srun": "`pliant run -g GPUS -- COMMAND`",
    "sshare": "`pliant project list`",
    "sstat": "`pliant top job`",
    "strigger": "`pliant wait NAME`",
}
"""The word or words that were typed, and what to use; {names} are the words after them that are no options
and no value of one."""

_VALUED = re.compile(r"-[a-zA-Z]")  # -u USER, but not -9 or --all


def instead(words: str, args: Sequence[str]) -> str | None:
    """The sentence that names the command to type instead of `pliant WORDS ARGS`; None for other words."""
    cure = _INSTEAD.get(words)
    if cure is None:
        return None
    before = ["", *args]
    given = [
        arg for at, arg in enumerate(args) if not arg.startswith("-") and not _VALUED.fullmatch(before[at])
    ]
    return f"Pliant has no command '{words}'. Use {cure.format(names=' '.join(given) or 'NAME')}."
