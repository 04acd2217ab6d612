"""The program `pliant` (also installed as `runai`): its commands by name, and what becomes of errors."""

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from pliant.cli.exits import INTERRUPTED, code_of
from pliant.cli.lazy import LazyGroup, remember
from pliant.cli.session import Session
from pliant.client import errors

_SECTIONS = {
    "Every day": {
        "submit": "pliant.cli.submit:submit",
        "list": "pliant.cli.listing:list_command",
        "describe": "pliant.cli.describe:describe",
        "get": "pliant.cli.describe:get",
        "logs": "pliant.cli.logs:logs",
        "exec": "pliant.cli.execute:exec_command",
        "bash": "pliant.cli.execute:bash",
        "attach": "pliant.cli.execute:attach",
        "suspend": "pliant.cli.actions:suspend",
        "resume": "pliant.cli.actions:resume",
        "delete": "pliant.cli.actions:delete",
        "why": "pliant.cli.why:why",
        "queue": "pliant.cli.why:queue",
        "top": "pliant.cli.top:top",
    },
    "By kind of workload": {
        "training": "pliant.cli.typed:training",
        "workspace": "pliant.cli.typed:workspace",
        "workload": "pliant.cli.typed:workload",
    },
    "Organization and machines": {
        "project": "pliant.cli.project:project",
        "department": "pliant.cli.department:department",
        "node": "pliant.cli.node:node",
        "nodepool": "pliant.cli.nodepool:nodepool",
        "cluster": "pliant.cli.cluster:cluster",
        "config": "pliant.cli.configure:config",
    },
    "Who you are": {
        "login": "pliant.cli.login:login",
        "logout": "pliant.cli.login:logout",
        "whoami": "pliant.cli.login:whoami",
        "auth": "pliant.cli.login:auth",
        "version": "pliant.cli.login:version",
        "completion": "pliant.cli.completion:completion",
    },
    "The server": {
        "up": "pliant.cli.server:up",
        "down": "pliant.cli.server:down",
        "restart": "pliant.cli.server:restart",
        "status": "pliant.cli.server:status",
        "backup": "pliant.cli.maintenance:backup",
        "restore": "pliant.cli.maintenance:restore",
        "debug": "pliant.cli.maintenance:debug",
    },
}

_EPILOG = "Every command also takes --server URL, --state DIR, --quiet and --debug."


def _print_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from pliant import __version__

        click.echo(f"pliant {__version__}")
        ctx.exit()


cli = LazyGroup(
    _SECTIONS,
    name="pliant",
    help="Share the GPUs of one machine or of a cluster between teams.",
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    params=[
        click.Option(
            ["-p", "--project"],
            metavar="NAME",
            expose_value=False,
            callback=remember,
            help="Project to work in.",
        ),
        click.Option(
            ["--server"], metavar="URL", expose_value=False, callback=remember, help="Server to talk to."
        ),
        click.Option(
            ["--state"],
            metavar="DIR",
            expose_value=False,
            callback=remember,
            help="State folder of a local server.",
        ),
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            default=None,
            expose_value=False,
            callback=remember,
            help="Print no notices.",
        ),
        click.Option(
            ["--debug"],
            is_flag=True,
            default=None,
            expose_value=False,
            callback=remember,
            help="Show tracebacks.",
        ),
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_print_version,
            help="Print it.",
        ),
    ],
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    program = os.path.basename(sys.argv[0])
    if program not in ("pliant", "runai"):
        program = "pliant"
    session = Session()
    try:
        result = cli.main(
            args=None if arguments is None else list(arguments),
            prog_name=program,
            standalone_mode=False,
            obj=session,
        )
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        return _say(error.format_message(), _advice(error), 2)
    except (KeyboardInterrupt, click.exceptions.Abort):
        click.echo("", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): say no more, not even at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except errors.PliantError as error:
        if session.debug:
            raise
        return _say(error.message, error.details, code_of(error))
    finally:
        session.close()


def _say(message: str, advice: str, code: int) -> int:
    click.echo(f"Error: {message}", err=True)
    if advice:
        click.echo(advice, err=True)
    return code


def _advice(error: Any) -> str:
    context = getattr(error, "ctx", None)
    return f"`{context.command_path} --help` shows how." if context is not None else ""
