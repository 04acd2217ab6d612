"""help: prints the help of the command with the given words."""

from __future__ import annotations

import click

from pliant.cli.lazy import Command


@click.command("help", cls=Command, short_help="Show the help of a command.")
@click.argument("words", nargs=-1, metavar="[COMMAND...]")
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command: `help submit`, `help training submit`."""
    context = ctx.find_root()
    command = context.command
    for word in words:
        found = command.get_command(context, word) if isinstance(command, click.Group) else None
        if found is None:
            raise click.UsageError(f"Unknown command '{' '.join(words)}'.")
        command = found
        context = click.Context(command, info_name=word, parent=context)
    click.echo(command.get_help(context))
