"""Translates command lines of Slurm's programs into those to type here, for `habits`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime

_SUBMIT = {
    "-J": "--job-name", "-G": "--gpus", "-c": "--cpus-per-task", "-t": "--time", "-p": "--partition",
    "-A": "--account", "-q": "--qos", "-a": "--array", "-d": "--dependency", "-b": "--begin",
    "-D": "--chdir", "-o": "--output", "-e": "--error", "-C": "--constraint", "-w": "--nodelist",
    "-x": "--exclude", "-N": "--nodes", "-n": "--ntasks", "-L": "--licenses", "-i": "--input",
}  # fmt: skip
_LONG = {
    "sbatch": _SUBMIT, "srun": _SUBMIT, "salloc": _SUBMIT,
    "squeue": {
        "-u": "--user", "-j": "--jobs", "-t": "--states", "-A": "--account", "-n": "--name",
        "-i": "--iterate", "-p": "--partition", "-o": "--format", "-O": "--Format", "-S": "--sort",
        "-w": "--nodelist",
    },
    "scancel": {
        "-u": "--user", "-t": "--state", "-A": "--account", "-n": "--name", "-s": "--signal",
        "-p": "--partition",
    },
    "sinfo": {"-o": "--format", "-O": "--Format", "-p": "--partition", "-t": "--states", "-n": "--nodes"},
    "sacct": {
        "-j": "--jobs", "-u": "--user", "-o": "--format", "-S": "--starttime", "-E": "--endtime",
        "-s": "--state", "-A": "--account",
    },
}  # fmt: skip
"""Short options that take a value, with their long forms, by program."""

_VALUED = {
    *("--gres", "--gpus-per-node", "--gpus-per-task", "--mem", "--mem-per-cpu", "--mem-per-gpu", "--wrap"),
    *("--ntasks-per-node", "--signal", "--export", "--mail-type", "--mail-user", "--comment", "--jobid"),
    *("--reservation", "--mpi"),
}
"""Long options that take a value and have no short form; others take one only as `--name=value`."""

_HEARD = {
    *("--job-name", "--gpus", "--gres", "--gpus-per-node", "--gpus-per-task", "--cpus-per-task", "--time"),
    *("--mem", "--mem-per-cpu", "--mem-per-gpu", "--partition", "--account", "--qos", "--array", "--wrap"),
    *("--dependency", "--begin", "--chdir", "--export", "--output", "--error", "--nodelist", "--exclude"),
    *(
        "--nodes",
        "--ntasks",
        "--ntasks-per-node",
        "-W",
        "--wait",
        "--test-only",
        "--parsable",
        "-H",
        "--hold",
    ),
    *("--requeue", "--pty", "-l", "--label", "-u", "--unbuffered", "--overlap", "--jobid", "-Q", "--quiet"),
    *("--mail-user", "-I", "--immediate", "-v", "--verbose", "-V", "--version"),
}
"""Options of a job that are translated, or need no counterpart."""

_STATES = {"PD": "Pending", "R": "Running", "S": "Suspended", "CD": "Completed", "F": "Failed"}


def command(program: str, args: Sequence[str]) -> str | None:
    """The command to type, in backquotes, and the options without counterpart; None for other programs."""
    make = _PROGRAMS.get(program)
    return make(args) if make is not None else None


def _parsed(program: str, args: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """(values by option, the remaining words)."""
    short = _LONG.get(program, {})
    valued = {*short.values(), *_VALUED}
    options: dict[str, str] = {}
    rest = list(args)
    words: list[str] = []
    first = program in ("sbatch", "srun", "salloc")  # the first word begins a command
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            words.append(word)
            if first:
                return options, words + rest
        elif word.startswith("--"):
            name, equals, value = word.partition("=")
            options[name] = value if equals or name not in valued or not rest else rest.pop(0)
        elif word[:2] in short:
            value = word[2:].removeprefix("=")
            options[short[word[:2]]] = value or (rest.pop(0) if rest else "")
        else:
            options |= dict.fromkeys((f"-{letter}" for letter in word[1:]), "")
    return options, words


def _sbatch(args: Sequence[str]) -> str:
    options, words = _parsed("sbatch", args)
    script = words[0] if words else ""
    options = {**_directives(script), **options}
    if {"-h", "--help"} & {*options}:
        return "`pliant submit --help`"
    if "--wrap" in options:
        typed = ["sh", "-c", options["--wrap"]]
    else:
        typed = ["bash", *words] if words else ["bash", "SCRIPT"]
    name = _name(options.get("--job-name") or re.sub(r"\.\w+$", "", script.rpartition("/")[2]) or "NAME")
    flags = _flags(options)
    if "-W" in options or "--wait" in options:
        flags.append("--wait")
    if "--test-only" in options:
        flags.append("--dry-run")
    if "--parsable" in options:
        flags += ["-o", "name"]
    hold = f" and then `pliant suspend {name}`" if "-H" in options or "--hold" in options else ""
    written = "; `pliant logs` prints its output" if {"--output", "--error"} & {*options} else ""
    return _said(_submit(name, options, flags), typed) + hold + written + _lacking(options)


def _submit(name: str, options: dict[str, str], flags: Sequence[str]) -> list[str]:
    """The words of `submit`, or of `training pytorch submit` for a gang of several tasks."""
    tasks = _tasks(options)
    if tasks < 2:
        named = [] if "--singleton" in flags else [name]
        return ["submit", *named, *[name if flag == "PREFIX" else flag for flag in flags]]
    renamed = {"--cpu": "--cpu-core-request", "--memory": "--cpu-memory-request"}
    gang = [renamed.get(flag, flag) for flag in flags]
    return ["training", "pytorch", "submit", name, "--no-master", "--workers", str(tasks), *gang]


def _directives(script: str) -> dict[str, str]:
    """The options of the script's #SBATCH lines."""
    found: dict[str, str] = {}
    try:
        with open(script, encoding="utf-8", errors="replace") as file:
            for line in file.read(100_000).splitlines():
                if line.startswith("#SBATCH"):
                    found |= _parsed("sbatch", shlex.split(line.removeprefix("#SBATCH"), comments=True))[0]
    except (OSError, ValueError):  # the command to type is printed all the same
        return found
    return found


def _srun(args: Sequence[str]) -> str:
    options, words = _parsed("srun", args)
    typed = words or ["COMMAND"]
    if job := options.get("--jobid"):
        terminal = "-it " if "--pty" in options else ""
        return f"`pliant exec {terminal}{job} -- {shlex.join(typed)}`"
    if _tasks(options) > 1:
        name = _name(options.get("--job-name", typed[0].rpartition("/")[2]))
        return _said([*_submit(name, options, _flags(options)), "--attach"], typed) + _lacking(options)
    terminal_flags = ["--stdin", "-t"] if "--pty" in options else []
    return _said(["run", *terminal_flags, *_flags(options)], typed) + _lacking(options)


def _salloc(args: Sequence[str]) -> str:
    options, words = _parsed("salloc", args)
    flags = _flags(options)
    return _said(["run", "--stdin", "-t", *flags], words or ["bash"]) + _lacking(options)


def _said(words: Sequence[str], typed: Sequence[str]) -> str:
    return f"`pliant {shlex.join(words)} -- {shlex.join(typed)}`"


def _flags(options: dict[str, str]) -> list[str]:
    """Pliant's flags for Slurm's options about resources, time, placement and the environment."""
    made: list[str] = []
    if (gpus := _gpus(options)) is not None:
        made += ["-g", gpus]
    cores = options.get("--cpus-per-task")
    if cores:
        made += ["--cpu", cores]
    for name, times in (("--mem", 1), ("--mem-per-gpu", gpus or 1), ("--mem-per-cpu", cores or 1)):
        if name in options:
            made += ["--memory", _memory(options[name], int(times) if str(times).isdecimal() else 1)]
    if "--time" in options:
        made += ["--max-runtime", _time(options["--time"])]
    for name, flag in _SAME.items():
        if name in options:
            made += [flag, options[name]]
    if "--begin" in options:
        made += ["--begin", re.sub(r"(now\+\d+)(second|minute|hour|day)s?$", _begin, options["--begin"])]
    if (after := options.get("--dependency")) is not None:
        made += (
            ["--singleton", "--job-name-prefix", "PREFIX"]
            if after == "singleton"
            else ["--dependency", after]
        )
    for node in options.get("--exclude", "").split(","):
        made += ["--exclude-node", node] if node else []
    if on := options.get("--nodelist"):
        made += ["--node-affinity", f"kubernetes.io/hostname={on}"]
    return made


_SAME = {
    "--partition": "--node-pools", "--account": "-p", "--qos": "--priority", "--array": "--array",
    "--chdir": "--working-dir", "--export": "--export",
}  # fmt: skip


def _begin(match: re.Match[str]) -> str:
    return f"{match[1]}{match[2][0]}"


def _gpus(options: dict[str, str]) -> str | None:
    for name in ("--gpus", "--gres", "--gpus-per-node", "--gpus-per-task"):
        if name in options:
            kind, _, number = options[name].rpartition(":")
            return number if number.isdigit() else "1" if number == "gpu" or kind else "GPUS"
    return None


def _tasks(options: dict[str, str]) -> int:
    """How many tasks start together; a range such as 1-4 counts as its minimum."""
    numbers = {
        name: int(found[0])
        for name in ("--ntasks", "--nodes", "--ntasks-per-node")
        if (found := re.match(r"\d+", options.get(name, "")))
    }
    if "--ntasks" in numbers:
        return numbers["--ntasks"]
    return numbers.get("--nodes", 1) * numbers.get("--ntasks-per-node", 1)


def _memory(text: str, times: int) -> str:
    """`times` times the amount, in Ki, Mi, Gi or Ti; Slurm's units are powers of 1024, by default MiB."""
    if not (found := re.fullmatch(r"(\d+)([KMGT]?)B?", text.upper())):
        return text
    return f"{int(found[1]) * times}{found[2] or 'M'}i"


def _time(text: str) -> str:
    """`M`, `M:S`, `H:M:S`, `D-H`, `D-H:M`, `D-H:M:S` as 1d2h3m4s."""
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    units = "hms" if dash or len(parts) == 3 else "ms"
    if not all(part.isdecimal() for part in (*parts, *([days] if dash else []))):
        return text
    pieces = [(int(days or 0), "d"), *((int(part), unit) for part, unit in zip(parts, units, strict=False))]
    return "".join(f"{number}{unit}" for number, unit in pieces if number) or "0s"


def _name(text: str) -> str:
    """The text made a valid name of a workload."""
    cleaned = re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-") if text != "NAME" else text
    return cleaned if re.match("[a-zA-Z]", cleaned) else f"job-{cleaned}"


def _lacking(options: dict[str, str]) -> str:
    missing = [name for name in options if name not in _HEARD]
    if not missing:
        return ""
    return f"; {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not supported"


def _squeue(args: Sequence[str]) -> str:
    options, _ = _parsed("squeue", args)
    if "--start" in options:
        return "`pliant why --all` for the expected starts"
    jobs = [it for it in (options.get("--jobs") or options.get("--name") or "").split(",") if it]
    typed = ["list", *(["jobs", *jobs] if jobs else []), *_filters(options)]
    if "--iterate" in options:
        typed.append("--watch")
    if "--json" in options:
        typed += ["-o", "json"]
    elif {"-l", "--long", "--format", "--Format"} & {*options}:
        typed += ["-o", "wide"]
    rest = "" if typed[1:] else " for all jobs or `pliant queue` for those that wait"
    return f"`pliant {shlex.join(typed)}`{rest}"


def _filters(options: dict[str, str]) -> list[str]:
    """Pliant's filters by user, status and project."""
    found = []
    if "--me" in options:
        found += ["--mine"]
    elif "--user" in options:
        found += ["-u", options["--user"]]
    state = (options.get("--states") or options.get("--state") or "").split(",")[0].upper()
    if state and state != "ALL":
        found += ["--status", _STATES.get(state, state.capitalize())]
    if "--account" in options:
        found += ["-p", options["--account"]]
    return found


def _scancel(args: Sequence[str]) -> str:
    options, words = _parsed("scancel", args)
    words += options.get("--name", "").split()
    sent = ["-s", options["--signal"]] if "--signal" in options else []
    if words:
        return f"`pliant {shlex.join(['cancel', *sent, *words])}`"
    if chosen := _filters(options):
        found = shlex.join(["list", *chosen, "-o", "name"])
        return f"`pliant {shlex.join(['cancel', *sent])} $(pliant {found})`"
    return "`pliant cancel NAME`"


def _sinfo(args: Sequence[str]) -> str:
    options, _ = _parsed("sinfo", args)
    if {"-s", "--summarize", "--partition"} & {*options}:
        return "`pliant nodepool list`"
    if {"-R", "--list-reasons"} & {*options}:
        return "`pliant describe node`"
    return "`pliant get nodes`"


def _sacct(args: Sequence[str]) -> str:
    options, _ = _parsed("sacct", args)
    typed = ["history", *(it for it in options.get("--jobs", "").split(",") if it)]
    if {"-a", "--allusers"} & {*options}:
        typed.append("-A")
    if "--account" in options:
        typed += ["-p", options["--account"]]
    if found := re.fullmatch(r"now-(\d+)([a-z])[a-z]*", options.get("--starttime", "")):
        typed += ["--since", f"{found[1]}{found[2]}"]
    elif "--starttime" in options:
        typed += ["--since", f"{_days_since(options['--starttime'])}d"]
    if {"-P", "-p", "--parsable", "--parsable2"} & {*options}:
        typed.append("--csv")
    elif "--json" in options:
        typed += ["-o", "json"]
    elif {"-l", "--long", "--format"} & {*options}:
        typed += ["-o", "wide"]
    return f"`pliant {shlex.join(typed)}`"


def _days_since(text: str) -> int:
    """Days from that date to today (UTC), both included, at least 1; 1 for a word such as today."""
    found = re.match(r"\d{4}-\d\d-\d\d", text)
    try:
        return max(1, (datetime.now(tz=UTC).date() - date.fromisoformat(found[0])).days + 1) if found else 1
    except ValueError:
        return 1


def _scontrol(args: Sequence[str]) -> str:
    words = [word for word in args if not word.startswith("-")]
    verb, about = (words or [""])[0], words[1:]
    fields = {key.lower(): value for key, _, value in (word.partition("=") for word in about)}
    job = fields.get("jobid") or fields.get("job") or (about or ["NAME"])[0]
    if verb == "show":
        kind, names = (about or ["job"])[0].lower(), " ".join(about[1:])
        if kind.startswith("node"):
            return f"`pliant describe node {names}`".replace(" `", "`")
        if kind.startswith("partition"):
            return "`pliant nodepool list`"
        if kind.startswith("config"):
            return "`pliant cluster settings`"
        return f"`pliant describe job {names}`" if names else "`pliant list -o wide`"
    if node := fields.get("nodename"):
        state = fields.get("state", "").lower()
        act = {"drain": "drain", "down": "cordon", "fail": "cordon"}.get(state, "uncordon")
        return f"`pliant node {act} {node}`"
    if verb == "requeue":
        return f"`pliant suspend {job}` and then `pliant resume {job}`"
    if verb == "update":
        return f"`pliant describe job {job} -o yaml` to read it; to change it, delete it and submit it again"
    return {
        "hold": f"`pliant suspend {job}`",
        "suspend": f"`pliant suspend {job}`",
        "release": f"`pliant resume {job}`",
        "resume": f"`pliant resume {job}`",
        "cancel": f"`pliant cancel {job}`",
        "ping": "`pliant status`",
        "reconfigure": "`pliant restart`",
    }.get(verb, "`pliant describe job NAME`, `pliant suspend NAME` or `pliant resume NAME`")


_PROGRAMS: dict[str, Callable[[Sequence[str]], str]] = {
    "sbatch": _sbatch,
    "srun": _srun,
    "salloc": _salloc,
    "squeue": _squeue,
    "scancel": _scancel,
    "sinfo": _sinfo,
    "sacct": _sacct,
    "scontrol": _scontrol,
}
