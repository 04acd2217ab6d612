"""Groups that import a command only when it is used, so that a command does not pay for the others."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click

from pliant.cli.exits import OWN_FAILURE
from pliant.cli.session import Session


def remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """An option's callback: stores the value in the Session, wherever on the command line the option is."""
    if value is not None and param.name is not None:
        setattr(ctx.ensure_object(Session), param.name, value)


def _everywhere() -> list[click.Parameter]:
    """The options that every command takes."""
    said: dict[str, Any] = {"expose_value": False, "callback": remember, "hidden": True, "default": None}
    return [
        click.Option(["--server"], metavar="URL", **said),
        click.Option(["--state"], metavar="DIR", **said),
        click.Option(["-q", "--quiet"], flag_value=True, is_flag=True, type=bool, **said),
        click.Option(["--debug"], flag_value=True, is_flag=True, type=bool, **said),
    ]


def _explained(ctx: click.Context, typed: Sequence[str], error: click.UsageError) -> click.UsageError:
    """An error that names what to type instead; `error` itself if there is no advice."""
    from pliant.cli.habits import mended

    better = None if ctx.resilient_parsing else mended(ctx, typed, error)
    return error if better is None else click.UsageError(better, ctx)


_ONE_ANSWER = (
    "backup",
    "create",
    "install",
    "run",
    "submit",
    "submit-dist",
    "submit-mpi",
    "update",
    "version",
)
"""Commands that print no table: --no-headers is accepted and not shown."""


class Command(click.Command):
    """A command of Pliant: takes --server, --state, --quiet and --debug."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_everywhere())
        if self.name in _ONE_ANSWER:
            for param in self.params:
                if param.name == "bare" and isinstance(param, click.Option):
                    param.hidden = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = list(args)
        lenient, ctx.allow_extra_args = ctx.allow_extra_args, True
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError as error:
            raise _explained(ctx, typed, error) from None
        ctx.allow_extra_args = lenient
        if rest and not lenient and not ctx.resilient_parsing:
            from pliant.cli.habits import extra

            told = extra(ctx, typed, rest)  # habits.extra, not a database query  # nosec B610
            raise click.UsageError(told, ctx)
        return rest


class JobCommand(Command):
    """A command that returns a job's exit code; its own failures return OWN_FAILURE."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        parent = kwargs.get("parent")
        if parent is not None:
            parent.ensure_object(Session).failure_code = OWN_FAILURE
        return super().make_context(*args, **kwargs)


class TailCommand(Command):
    """A command that separates the words after `--`: `tail(ctx)` returns them, or None without `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            cut = args.index("--")
            ctx.meta["pliant.tail"] = args[cut + 1 :]
            args = self.before_tail(args[:cut])
        return super().parse_args(ctx, args)

    def before_tail(self, args: list[str]) -> list[str]:
        """Rewrite the words before `--`; called only if there is a `--`."""
        return args


def tail(ctx: click.Context) -> list[str] | None:
    found: list[str] | None = ctx.meta.get("pliant.tail")
    return found


class LazyGroup(click.Group):
    """A group that maps command names to `module:attribute`, in sections for its help."""

    command_class = Command

    def __init__(self, sections: Mapping[str, Mapping[str, str]], **attrs: Any) -> None:
        super().__init__(**attrs)
        self.sections = sections
        self.where = {name: place for section in sections.values() for name, place in section.items()}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise _explained(ctx, typed, error) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.where)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self.where.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and name not in self.where and not ctx.resilient_parsing:
            from pliant.cli.habits import unknown

            said = unknown(ctx.command_path.split(), name, args[1:], self.where)
            raise click.UsageError(said, ctx if said.startswith("Unknown") else None)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        shown: set[str] = set()
        for title, names in self.sections.items():
            rows = []
            for name, place in names.items():
                command = self.get_command(ctx, name)
                if command is not None and not command.hidden and place not in shown:  # skips aliases
                    shown.add(place)
                    rows.append((name, command.get_short_help_str(limit=formatter.width - 22)))
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
