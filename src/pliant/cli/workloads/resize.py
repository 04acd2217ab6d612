"""resize: changes the cores and memory of a running job."""

import click

from pliant.cli.completion import workload_names
from pliant.cli.lazy import Command
from pliant.cli.output.formats import project_option
from pliant.cli.session import Session, pass_session
from pliant.cli.submit.options import amount
from pliant.cli.submit.submission import cpu


@click.command("resize", cls=Command, short_help="Change the CPU cores and the memory of a running job.")
@click.argument("name", shell_complete=workload_names)
@click.option("--cpu", "cores", metavar="CORES", help="CPU cores of each task, e.g. 0.5 or 500m.")
@click.option("--memory", metavar="AMOUNT", help="CPU memory of each task, e.g. 4G.")
@click.option("--group", default="", metavar="GROUP", help="Only tasks of this group, e.g. worker.")
@click.option("-g", "--gpu", "gpus", hidden=True)
@project_option
@pass_session
def resize(
    session: Session, name: str, cores: str | None, memory: str | None, group: str, gpus: str | None
) -> None:
    """Change the CPU cores and the memory of a job. Its tasks keep running, on a Kubernetes cluster too. More
    is granted if their node has it and the quota allows it; `pliant why NAME` tells what a node cannot give.
    """
    if gpus is not None:
        raise click.UsageError(
            "The GPUs of an elastic job change by themselves: "
            "`pliant submit NAME -g GPUS --elastic -- COMMAND`."
        )
    if cores is None and memory is None:
        raise click.UsageError("Give --cpu, --memory or both.")
    found = session.find(name)
    session.client.refit(
        found["id"],
        cpu=cpu(cores, "--cpu") if cores is not None else None,
        memory=amount(memory, "--memory") if memory is not None else None,
        group=group,
    )
    click.echo(f"{session.noun.capitalize()} {found['name']} resized successfully.")
