"""The help of a submit command: examples, then the options in groups, the basic ones first."""

from __future__ import annotations

import copy
from typing import Any

import click

from pliant.cli.lazy import TailCommand

_ALL = "pliant.help-all"
"""Key of ctx.meta that is set if --help-all was given."""

_TYPED = "pliant.typed"
"""Key of ctx.meta for the words after the command."""

GROUPS = {
    "Basic": (
        "--project", "--gpu", "--gpu-devices-request", "--cpu", "--cpu-core-request", "--memory",
        "--cpu-memory-request", "--environment", "--environment-variable", "--working-dir", "--max-runtime",
        "--attach",
    ),
    "Identity": (
        "--name", "--job-name-prefix", "--name-prefix", "--type", "--interactive", "--image", "--label",
        "--annotation",
    ),
    "GPU sharing and elasticity": (
        "--gpu-memory", "--gpu-request-type", "--gpu-portion-request", "--gpu-portion-limit",
        "--gpu-memory-request", "--gpu-memory-limit", "--elastic",
    ),
    "Input and output": (
        "--command", "--args", "--export", "--env-file", "--secret", "--wait", "--stdin", "--tty", "--output",
        "--json", "--yaml", "--no-headers",
    ),
    "Order": (
        "--priority", "--preemptibility", "--preemptible", "--background", "--preemption-delay",
        "--begin", "--dependency", "--after", "--keep-pending", "--singleton", "--array",
    ),
    "Retries and end": (
        "--backoff-limit", "--restart-policy", "--termination-grace-period", "--stale-grace",
        "--ttl-after-finish", "--auto-deletion-time-after-completion",
    ),
    "Placement": (
        "--node-type", "--node-pools", "--node-affinity", "--prefer-node", "--exclude-node", "--toleration",
        "--anti-affinity", "--topology", "--required-topology", "--preferred-topology",
    ),
    "Several tasks": (
        "--workers", "--processes", "--min-replicas", "--max-replicas", "--slots-per-worker", "--completions",
        "--parallelism", "--no-master", "--master-command", "--master-args", "--master-priority",
        "--master-gpu-devices-request", "--master-gpu-portion-request", "--master-gpu-memory-request",
        "--master-cpu-core-request", "--master-cpu-memory-request",
    ),
    "Services": (
        "--jupyter", "--vscode", "--tensorboard", "--no-wait",
        "--inference", "--replicas", "--service-type", "--port", "--external-url",
        "--serving-port",
    ),
}  # fmt: skip
"""Options by group in the order of the help; options without a group come last."""


class NoEffect(click.Option):
    """An option of Run:ai that is accepted without effect; only --help-all shows it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"help": "Accepted; no effect here.", **kwargs, "hidden": True})

    def shown(self) -> NoEffect:
        """A copy that the help shows."""
        option = copy.copy(self)
        option.hidden = False
        return option


class GroupedCommand(TailCommand):
    """A submit command; `examples` are the words after its name."""

    examples: tuple[str, ...] = (
        "train -g 1 -c -- python train.py",
        "small --gpu-portion-request 0.5 --cpu-memory-request 8Gi -e SEED=1 -c -- python train.py",
        "long -g 2 --max-runtime 2h --working-dir ~/project -c -- python train.py",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(
            click.Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_help_all,
                help="Show this message with the options that have no effect here.",
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = list(args)
        ctx.meta[_TYPED] = typed
        try:
            return super().parse_args(ctx, args)
        except click.UsageError:
            if "--" in typed or ctx.resilient_parsing:
                raise
            if (line := meant(ctx)) is None:
                raise
            raise click.UsageError(f"Write the command after `--`: `{line}`") from None

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"  {ctx.command_path} {example}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [it for it in self.get_params(ctx) if isinstance(it, click.Option)]
        by_flag = {flag: option for option in options for flag in option.opts}
        sections = {
            title: [by_flag[flag] for flag in flags if flag in by_flag] for title, flags in GROUPS.items()
        }
        placed = {id(option) for section in sections.values() for option in section}
        sections["Other options"] = [option for option in options if id(option) not in placed]
        if ctx.meta.get(_ALL):
            sections["Accepted without effect"] = [it.shown() for it in options if isinstance(it, NoEffect)]
        for title, section in sections.items():
            rows = [row for option in section if (row := option.get_help_record(ctx)) is not None]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def meant(ctx: click.Context) -> str | None:
    """The typed line with the missing `--` before the command; None if no word looks like a command."""
    from pliant.cli.habits import dashed

    options = [it for it in ctx.command.params if isinstance(it, click.Option) and not it.is_flag]
    return dashed(ctx.command_path.split(), ctx.meta[_TYPED], [flag for it in options for flag in it.opts])


def _help_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help())
        ctx.exit()
