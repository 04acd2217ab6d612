"""Loss and number of workers over the steps of a job, as an SVG.

python -m pliant.train run --workers 4 --dir /tmp/job examples/train/classify.py
python examples/train/picture.py /tmp/job/status.json digits.svg
"""

import json
import sys
from pathlib import Path

WIDTH, HEIGHT, EDGE = 720, 320, 48


def picture(status: dict) -> str:
    """The SVG of a status: the loss as a line, the workers as steps below it."""
    losses, changes = status["losses"], status["changes"]
    if not losses:
        raise SystemExit("This job has reported no loss yet")
    last = max(status["step"], 1)
    top = max(loss for _, loss in losses) or 1.0
    most = max(change["world"] for change in changes)

    def x(step: float) -> float:
        return EDGE + step / last * (WIDTH - 2 * EDGE)

    def y(share: float) -> float:
        return HEIGHT - EDGE - share * (HEIGHT - 2 * EDGE)

    line = " ".join(f"{x(step):.1f},{y(loss / top):.1f}" for step, loss in losses)
    steps, before = [], 0
    for change in changes:
        steps += [(change["step"], before), (change["step"], change["world"])]
        before = change["world"]
    steps.append((last, before))
    world = " ".join(f"{x(step):.1f},{y(size / most / 3):.1f}" for step, size in [*steps, (last, 0)])
    marks = [(x(0), HEIGHT - 20, "0"), (x(last) - 30, HEIGHT - 20, f"step {last}"), (4, y(1), f"{top:.2g}")]
    marks += [(WIDTH - EDGE + 4, y(1 / 3), f"{most} workers"), (EDGE + 6, 20, "loss (line), workers (area)")]
    words = "".join(f'<text x="{a:.0f}" y="{b:.0f}">{word}</text>' for a, b, word in marks)
    size = f'width="{WIDTH + 40}" height="{HEIGHT}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/>'
        f'<polygon points="{x(0):.1f},{y(0):.1f} {world}" fill="#cfe3f7"/>'
        f'<polyline points="{line}" fill="none" stroke="#b03030" stroke-width="2"/>{words}</svg>\n'
    )


if __name__ == "__main__":
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    target.write_text(picture(json.loads(source.read_text())))
    print(target)
