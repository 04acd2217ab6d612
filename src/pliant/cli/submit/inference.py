"""`inference submit`: services of equal replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from pliant.cli.lazy import tail
from pliant.cli.session import Session, pass_session
from pliant.cli.submit import submission, v2
from pliant.cli.submit.grouped import GroupedCommand, NoEffect

if TYPE_CHECKING:
    from pliant.wire.submission import Inference


class InferenceCommand(GroupedCommand):
    examples = (
        "server -g 1 --serving-port 8000 -c -- python serve.py",
        "idle --serving-port 8000 --min-replicas 1 -c -- python serve.py",
        "small --gpu-portion-request 0.5 --serving-port 8000 --min-replicas 2 -c -- python serve.py",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for param in self.params:
            if isinstance(param, click.Option) and {"--attach", "--wait", "--max-runtime"} & {*param.opts}:
                param.hidden = True  # a service does not end


@click.command("submit", cls=InferenceCommand, short_help="Submit an inference service.")
@v2.options
@click.option("--serving-port", metavar="SPEC", help="8000, or container=8000,protocol=http.")
@click.option("--min-replicas", type=click.IntRange(0), metavar="N", help="Number of replicas (default: 1).")
@click.option(
    "--max-replicas",
    cls=NoEffect,
    type=click.IntRange(1),
    metavar="N",
    help="Accepted; there is no autoscaling yet.",
)
@click.pass_context
@pass_session
def submit(session: Session, ctx: click.Context, **given: Any) -> int | None:
    """Submit an inference service. Words after `--` are its arguments; with -c they are its command."""
    few, many = given["min_replicas"], given["max_replicas"]
    if few is not None and many is not None and few > many:
        raise click.UsageError(f"--min-replicas {few} is more than --max-replicas {many}.")
    body = cast("Inference", v2.request(session, given, tail(ctx)))
    if few is not None:
        body["spec"].setdefault("autoscaling", {})["minReplicas"] = few
    if many is not None:
        body["spec"].setdefault("autoscaling", {})["maxReplicas"] = many
    if given["serving_port"]:
        body["spec"]["servingPort"] = submission.serving_port(given["serving_port"])
    return submission.finish(session, "Inference", body, given)
