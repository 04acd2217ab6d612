"""-o json|yaml|wide|name, --no-headers: the output formats, and the options that choose one."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from pliant.cli.lazy import remember
from pliant.cli.session import Session

_Function = TypeVar("_Function", bound=Callable[..., Any])

_PLAIN = r"[A-Za-z/_][A-Za-z0-9 /_.@()+-]*"
PATH = "jsonpath="
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "~", ""}


class _Output(click.Choice[str]):
    """One of the formats, or a jsonpath."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and value.startswith(PATH):
            return value
        if ctx is not None and ctx.info_name in ("submit", "run") and str(value) not in self.choices:
            raise click.UsageError(
                f"-o {value} is no format. For the job's output use `pliant logs NAME > {value}`.",
                ctx,
            )
        return super().convert(value, param, ctx)


def output_options(function: _Function) -> _Function:
    """-o, its short forms and --no-headers; the choice goes into the Session."""

    def short(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value:
            ctx.ensure_object(Session).output = str(param.name)

    def bare(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value:
            ctx.ensure_object(Session).headers = False

    decorators = (
        click.option(
            "-o",
            "--output",
            type=_Output(["table", "wide", "json", "yaml", "name", f"{PATH}{{.FIELD}}"]),
            metavar="FORMAT",
            expose_value=False,
            callback=remember,
            help="Output format: table, wide, json, yaml, name or jsonpath={.FIELD}.",
        ),
        click.option("--json", is_flag=True, expose_value=False, callback=short, help="Same as -o json."),
        click.option("--yaml", is_flag=True, expose_value=False, callback=short, help="Same as -o yaml."),
        click.option(
            "--no-headers", is_flag=True, expose_value=False, callback=bare, help="Print no header line."
        ),
    )
    for decorate in reversed(decorators):
        function = decorate(function)
    return function


def project_option(function: _Function) -> _Function:
    """-p/--project; its value goes into the Session."""
    return click.option(
        "-p",
        "--project",
        metavar="NAME",
        expose_value=False,
        callback=remember,
        help="Project (default: the configured one).",
    )(function)


def structured(session: Session, value: Any) -> bool:
    """Print `value` if the output format is JSON, YAML or jsonpath; returns whether it is."""
    if session.output == "json":
        click.echo(json.dumps(value, indent=2, ensure_ascii=False))
    elif session.output == "yaml":
        click.echo(as_yaml(value))
    elif session.output.startswith(PATH):
        from pliant.cli.output.jsonpath import pick

        click.echo(pick(session.output.removeprefix(PATH), value), nl=False)
    else:
        return False
    return True


def show(session: Session, items: Sequence[Mapping[str, Any]], text: Callable[[], str]) -> None:
    """Print a list in the chosen output format; `text` makes the table."""
    if structured(session, items):
        return
    if session.output == "name":
        lines = "\n".join(str(item["name"]) for item in items)
    else:
        lines = text()
    if lines:
        click.echo(lines)


def as_yaml(value: Any) -> str:
    """A JSON-compatible value as YAML in block style, without a newline at the end."""
    return "\n".join(_lines(value))


def _lines(value: Any) -> list[str]:
    if isinstance(value, Mapping) and value:
        lines = []
        for key, entry in value.items():
            inner = _lines(entry)
            if _nested(entry):
                lines += [f"{_scalar(str(key))}:", *(f"  {line}" for line in inner)]
            else:
                lines.append(f"{_scalar(str(key))}: {inner[0]}")
        return lines
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        lines = []
        for entry in value:
            inner = _lines(entry)
            lines += [f"- {inner[0]}", *(f"  {line}" for line in inner[1:])]
        return lines
    return [_scalar(value)]


def _nested(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple) and bool(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return value if _plain(value) else _quoted(value)
    text = json.dumps(list(value) if isinstance(value, tuple) else value)
    if isinstance(value, float) and "e" in text and "." not in text:
        return text.replace("e", ".0e")  # YAML 1.1 reads 1e+16 as a string
    return text


def _plain(text: str) -> bool:
    """True if YAML reads the unquoted text as this same string."""
    return bool(re.fullmatch(_PLAIN, text)) and text.lower() not in _WORDS and not text.endswith(" ")


def _quoted(text: str) -> str:
    def escaped(character: str) -> str:
        if character in '"\\':
            return f"\\{character}"
        if character.isprintable():
            return character
        code = ord(character)
        return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"

    return f'"{"".join(map(escaped, text))}"'
