"""The program `pliant` (also installed as `runai`), and what all our programs share: from a command line to
an exit code, in one process.
"""

import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import click


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; without `arguments` be the program, which ends."""
    return program(arguments, _pliant, ("pliant", "runai"))


def program(
    arguments: Sequence[str] | None, load: "Callable[[], click.Command]", names: Sequence[str]
) -> int:
    """The same for the command that `load` imports; its names are those that it may be called by."""
    if arguments is not None:
        return _run(list(arguments), load, names)
    gc.set_threshold(50_000)  # imports make many objects and no garbage
    code = _run(sys.argv[1:], load, names)
    _leave(code)


def _pliant() -> "click.Command":
    from pliant.cli.commands import cli

    return cli


def _run(arguments: list[str], load: "Callable[[], click.Command]", names: Sequence[str]) -> int:
    import click

    from pliant.cli.exits import INTERRUPTED, code_of
    from pliant.cli.output.plain import Plain
    from pliant.cli.session import Session
    from pliant.client.errors import PliantError

    called = os.path.basename(sys.argv[0])
    session = Session()
    outer = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = Plain(sys.stdout), Plain(sys.stderr)
    try:
        result = load().main(
            args=arguments,
            prog_name=called if called in names else names[0],
            standalone_mode=False,
            obj=session,
        )
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        return _say(error.format_message(), _advice(error), session.failure_code or 2)
    except (KeyboardInterrupt, click.exceptions.Abort):
        return INTERRUPTED
    except SystemExit as error:  # from click's completion
        return int(error.code or 0)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`): say no more, not even at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except PliantError as error:
        if session.debug:
            raise
        return _say(error.message, error.details, session.failure_code or code_of(error))
    except OSError as error:
        if session.debug:
            raise
        return _say(f"{error.filename or 'output'}: {error.strerror or error}", "", 1)
    finally:
        session.close()
        sys.stdout, sys.stderr = outer


def _leave(code: int) -> NoReturn:
    """End the process at once: taking the interpreter apart would cost as much as a request to the server."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _say(message: str, advice: str, code: int) -> int:
    sys.stderr.write(f"Error: {message}\n")
    if advice:
        sys.stderr.write(f"{advice}\n")
    return code


def _advice(error: Any) -> str:
    context = getattr(error, "ctx", None)
    return f"`{context.command_path} --help` shows how." if context is not None else ""
