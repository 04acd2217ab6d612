"""The program `pliant` (also installed as `runai`), and what all Pliant programs share: they run a command
line in one process and turn its result into an exit code.
"""

import gc
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import click


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; without `arguments` run sys.argv and end the process."""
    return program(arguments, _pliant, ("pliant", "runai"))


def program(
    arguments: Sequence[str] | None, load: "Callable[[], click.Command]", names: Sequence[str]
) -> int:
    """Like `main`, for the command that `load` imports; `names` are the program's possible names."""
    if arguments is not None:
        return _run(list(arguments), load, names)
    gc.set_threshold(50_000)  # imports allocate many objects and hardly any garbage
    _open_streams()
    code = _run(sys.argv[1:], load, names)
    _leave(code)


def _open_streams() -> None:
    """Make the standard streams usable if the caller has closed some, or cannot show every character."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed: its number is the lowest free one, so open() takes it
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _pliant() -> "click.Command":
    from pliant.cli.commands import cli

    return cli


def _run(arguments: list[str], load: "Callable[[], click.Command]", names: Sequence[str]) -> int:
    import click

    from pliant.cli.exits import INTERRUPTED, code_of
    from pliant.cli.output.plain import Plain
    from pliant.cli.session import Session
    from pliant.client.errors import PliantError

    sys.set_int_max_str_digits(0)  # a typed number may have any length; its range is checked where it is used
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
    except (KeyboardInterrupt, click.exceptions.Abort) as error:
        if isinstance(error.__context__, EOFError):  # a prompt that nobody answers
            advice = "`--help` shows the options that answer it."
            return _say("Standard input ended before a question was answered.", advice, 2)
        return INTERRUPTED
    except SystemExit as error:  # from click's completion
        return int(error.code or 0)
    except BrokenPipeError:
        # The reader of the output has gone (`| head`): print nothing more, not even in the flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except PliantError as error:
        if session.debug:
            raise
        return _say(error.message, error.details, session.failure_code or code_of(error))
    except UnicodeEncodeError as error:  # bytes that are not UTF-8 came from the command line or a variable
        if session.debug:
            raise
        advice = "Only text in UTF-8 can be sent to the server: type it again."
        return _say(f"{error.object!r} is not UTF-8 text.", advice, session.failure_code or 2)
    except OSError as error:
        if session.debug:
            raise
        return _say(f"{error.filename or 'output'}: {error.strerror or error}", "", 1)
    finally:
        session.close()
        sys.stdout, sys.stderr = outer


def _leave(code: int) -> NoReturn:
    """End the process at once: a regular interpreter shutdown costs as much as a request to the server."""
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
