"""python -m tests.conformance DIR_OR_FILE…: run scenarios and say what differed.

Each is run twice: with the source's rule of who loses first (victims=youngest), and with our settings as they
come. A scenario in which our verdict is another on purpose stands in known.json and counts for itself.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from tests.conformance.known import verdict
from tests.conformance.play import play
from tests.conformance.shuffle import shuffled
from tests.conformance.state import Json

DATA = Path(__file__).parent / "data"
LEFT_OUT_AREAS = ("numa", "pod_affinity")
LEFT_OUT_TAGS = ("custom_plugins",)
MODES = {"victims=youngest": False, "defaults": True}
"""How a scenario is run, and whether our settings stay as they come."""


def files(paths: list[Path]) -> Iterator[Path]:
    for path in paths or [DATA]:
        if path.is_dir():
            yield from sorted(path.glob("*.json"))
        else:
            yield path


def read(paths: list[Path]) -> Iterator[Json]:
    """All scenarios of some files and folders; a file may hold one or a list of them."""
    for path in files(paths):
        content = json.loads(path.read_text(encoding="utf-8"))
        yield from content if isinstance(content, list) else [content]


def left_out(case: Json) -> str:
    """Why a scenario is not run unless asked for; '' if it is."""
    if case.get("area") in LEFT_OUT_AREAS:
        return f"area {case['area']}"
    return next((f"tag {tag}" for tag in case.get("tags", ()) if tag in LEFT_OUT_TAGS), "")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, metavar="DIR_OR_FILE", help="default: our own copy")
    parser.add_argument("--all", action="store_true", help="also the areas and tags that are left out")
    parser.add_argument("--area", action="append", default=[], help="only this area; repeatable")
    parser.add_argument("--id", action="append", default=[], help="only this scenario; repeatable")
    parser.add_argument("--shuffle", type=int, metavar="SEED", help="names and orders shuffled first")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="print the N slowest")
    parser.add_argument("--areas", action="store_true", help="print a table by area")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="print passes and everything that differed"
    )
    options = parser.parse_args(arguments)
    try:
        cases = list(read(options.paths))
    except (OSError, ValueError) as error:
        print(f"cannot read scenarios: {error}", file=sys.stderr)
        return 2
    counts = {mode: dict.fromkeys(("passed", "ours", "failed"), 0) for mode in MODES}
    skipped: dict[str, int] = {}
    table: dict[str, list[int]] = {}
    times: list[tuple[float, str]] = []
    for case in cases:
        name = str(case.get("id", "?"))
        if (options.id and name not in options.id) or (options.area and case.get("area") not in options.area):
            continue
        why = "" if options.all or options.id else left_out(case)
        if why:
            skipped[why] = skipped.get(why, 0) + 1
            continue
        if options.shuffle is not None:
            case = shuffled(case, options.shuffle)
        for mode, defaults in MODES.items():
            begun = perf_counter()
            found = play(case, defaults)
            times.append((perf_counter() - begun, f"{name} ({mode})"))
            said = verdict(name, found, defaults)
            counts[mode][said] += 1
            table.setdefault(str(case.get("area", "?")), [0, 0])[said == "failed"] += 1
            if said == "failed":
                rest = f" (and {len(found) - 3} more)" if len(found) > 3 and not options.verbose else ""
                print(f"{name} ({mode}): {'; '.join(found if options.verbose else found[:3])}{rest}")
            elif options.verbose:
                print(f"{name} ({mode}): {said} in {times[-1][0]:.3f} s")
    for seconds, name in sorted(times, reverse=True)[: options.slowest]:
        print(f"{seconds:8.3f} s  {name}")
    if options.areas:
        for area, (good, bad) in sorted(table.items()):
            print(f"{area:32} {good:4} passed {bad:4} failed  {100 * good // (good + bad):4} %")
    if skipped:
        print("left out: " + ", ".join(f"{count} of {why}" for why, count in sorted(skipped.items())))
    for mode, it in counts.items():
        print(f"{mode}: {it['passed']} passed, {it['ours']} with our own verdict, {it['failed']} failed")
    return 1 if any(it["failed"] for it in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
