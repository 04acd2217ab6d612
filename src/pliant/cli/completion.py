"""Shell completion: the scripts, and the names of workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pliant.cli.lazy import Command
from pliant.cli.session import Session, pass_session
from pliant.client.errors import PliantError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def workload_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Workload names of the current project that begin with `incomplete`; [] if the request fails."""
    from click.shell_completion import CompletionItem

    session = ctx.ensure_object(Session)
    try:
        items = list(session.client.workloads(session.current_project, kind=session.asked_kind))
    except PliantError:
        return []
    return [CompletionItem(item["name"]) for item in items if item["name"].startswith(incomplete)]


@click.command("completion", cls=Command, short_help="Print the completion script for a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@pass_session
def completion(session: Session, shell: str) -> None:
    """Print the completion script for a shell.

    bash: `source <(pliant completion bash)` in ~/.bashrc; zsh: the same in ~/.zshrc; fish: write it to
    ~/.config/fish/completions/pliant.fish.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"No completion for {shell}; use bash, zsh or fish.")
    root = click.get_current_context().find_root()
    variable = f"_{session.program.upper()}_COMPLETE"
    click.echo(kind(root.command, {}, session.program, variable).source())
