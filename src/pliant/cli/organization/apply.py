"""`apply -f`: creates or changes objects from Kubernetes manifests; so far only priority classes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from pliant.cli.lazy import Command
from pliant.cli.organization.priorityclass import CLASSES
from pliant.cli.output.formats import output_options, structured
from pliant.cli.session import Session, pass_session

KIND, VERSION = "PriorityClass", "scheduling.k8s.io/v1"
_FIELDS = (
    "apiVersion",
    "kind",
    "metadata",
    "value",
    "globalDefault",
    "description",
    "preemptionPolicy",
)


@click.command("apply", cls=Command, short_help="Create or change objects from YAML files.")
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="YAML file; - is stdin (repeatable).",
)
@output_options
@pass_session
def apply(session: Session, files: tuple[str, ...]) -> None:
    """Create or change priority classes (kind: PriorityClass) from YAML files: all of them, or none."""
    asked = [row for file in files for row in read(file, _text(file))]
    if not asked:
        raise click.UsageError(f"{', '.join(files)}: no objects found.")
    done = session.client.call("PUT", CLASSES, body={"priorityClasses": asked})["applied"]
    if session.output == "name":
        click.echo("\n".join(f"priorityclass.scheduling.k8s.io/{entry['name']}" for entry in done))
    elif not structured(session, done):
        for entry in done:
            click.echo(f"priorityclass.scheduling.k8s.io/{entry['name']} {entry['result']}")


def _text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except OSError as error:
        raise click.UsageError(f"-f {file}: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"-f {file}: not UTF-8 text.") from None


def read(file: str, text: str) -> list[dict[str, Any]]:
    """The priority class of each document. Raises UsageError with the file, the document and the line."""
    import yaml  # most commands never need it

    found = []
    try:
        loader = yaml.SafeLoader(text)
        try:
            number = 0
            while loader.check_node() and (node := loader.get_node()) is not None:
                number += 1
                where = f"{file}: document {number} (line {node.start_mark.line + 1})"
                lines = _lines(where, node, yaml.MappingNode)
                document = loader.construct_document(node)
                if document is not None:
                    found.append(_class(where, file, document, lines))
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # also a date such as 2026-13-01
        raise click.UsageError(f"{file}:{fault(error)}") from None
    return found


def fault(error: Exception) -> str:
    """What is wrong with a YAML text, after its line: ' line 2: invalid YAML: ...'."""
    mark = getattr(error, "problem_mark", None)
    place = f" line {mark.line + 1}:" if mark is not None else ""
    return f"{place} invalid YAML: {getattr(error, 'problem', None) or error}."


def _lines(where: str, node: Any, mapping: type[Any]) -> dict[str, int]:
    """The line number of each field of a document. Raises UsageError for a field that appears twice."""
    lines: dict[str, int] = {}
    for key, _ in node.value if isinstance(node, mapping) else ():
        if not isinstance(key.value, str):
            raise click.UsageError(f"{where}: a field's name must be a text.")
        if key.value in lines:
            raise click.UsageError(f"{where}: field {key.value} appears twice.")
        lines[key.value] = key.start_mark.line + 1
    return lines


def _class(where: str, file: str, document: Any, lines: Mapping[str, int]) -> dict[str, Any]:
    if not isinstance(document, Mapping):
        raise click.UsageError(f"{where}: not an object: expected apiVersion, kind, metadata and value.")
    kind = document.get("kind")
    if kind != KIND:
        what = f"kind {kind} cannot be applied here" if kind else "it has no kind"
        raise click.UsageError(
            f"{where}: {what}; only kind {KIND} can be applied. For a job "
            "use `pliant submit NAME -- COMMAND`."
        )

    def wrong(field: str, said: str) -> click.UsageError:
        line = lines.get(field)
        return click.UsageError(f"{file}: line {line}: {said}" if line else f"{where}: {said}")

    if document.get("apiVersion") != VERSION:
        raise wrong("apiVersion", f"apiVersion is {document.get('apiVersion')}; expected {VERSION}.")
    _known(document, wrong)
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str) or not name:
        raise wrong("metadata", "metadata.name is missing or not a string.")
    value = document.get("value")
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong("value", f"value is {value!r}; expected a whole number such as 1000.")
    if document.get("globalDefault") not in (None, False):
        raise wrong(
            "globalDefault",
            "globalDefault is not supported: a workload without a class has the priority of its kind.",
        )
    if document.get("preemptionPolicy") not in (None, "PreemptLowerPriority"):
        raise wrong("preemptionPolicy", "preemptionPolicy: only PreemptLowerPriority is possible.")
    return {"name": name, "value": value, "description": str(document.get("description") or "")}


def _known(fields: Iterable[Any], wrong: Any) -> None:
    for field in fields:
        if field not in _FIELDS:
            near = get_close_matches(str(field), _FIELDS, 1)
            advice = f"did you mean {near[0]}?" if near else f"the fields are {', '.join(_FIELDS)}."
            raise wrong(field, f"there is no field {field!r}; {advice}")
