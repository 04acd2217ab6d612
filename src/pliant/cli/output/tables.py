"""Tables: columns two spaces apart, left aligned, without lines between them."""

from collections.abc import Iterable, Sequence

RULE = "─"


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    rule: bool = False,
    headers: bool = True,
    right: Sequence[str] = (),
) -> str:
    """The lines of a table; with `rule` a row of ─ follows the header. Trailing spaces are removed.

    `right` names the columns of numbers, which are aligned on the right.
    """
    body = [[str(cell) for cell in row] for row in rows]
    shown = [list(header), *body] if headers else body
    widths = [max(len(row[column]) for row in shown) for column in range(len(header))] if shown else []
    align = [str.rjust if name in right else str.ljust for name in header]
    lines = [
        "  ".join(put(cell, width) for put, cell, width in zip(align, row, widths, strict=True))
        for row in shown
    ]
    if headers and rule:
        lines.insert(1, RULE * (sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join(line.rstrip() for line in lines)


def grouped(
    groups: Sequence[tuple[str, Sequence[str]]], rows: Iterable[Sequence[str]], *, headers: bool = True
) -> str:
    """A table with a line of group titles above the columns they span."""
    columns = [column for _, names in groups for column in names]
    text = table(columns, rows, headers=True)
    lines = text.split("\n")
    if not headers:
        return "\n".join(lines[1:])
    starts, position = [], 0
    for column in columns:
        position = lines[0].index(column, position)
        starts.append(position)
        position += len(column)
    title, at = "", 0
    for name, names in groups:
        title = title.ljust(starts[at]) + name
        at += len(names)
    return "\n".join([title, *lines])


def selected(
    columns: str | None, header: Sequence[str], rows: Iterable[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """The named columns (comma-separated, any case) in that order; `name` is the first. Raises ValueError."""
    wanted = (
        [name.strip().lower() for name in columns.split(",")]
        if columns
        else [name.lower() for name in header]
    )
    lower = [name.lower() for name in header]
    wanted = [lower[0] if name == "name" and name not in lower else name for name in wanted]
    missing = [name for name in wanted if name not in lower]
    if missing:
        raise ValueError(f"there is no column {missing[0]!r}; there are: {', '.join(header)}")
    places = [lower.index(name) for name in wanted]
    return [header[place] for place in places], [[row[place] for place in places] for row in rows]
