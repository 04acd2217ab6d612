"""Types every example of the page about the API as printed, in order."""

import json
import re
from pathlib import Path

import pytest

from examples.walkthrough import Done, Stage
from tests.e2e.test_seed_api import Reader
from tests.e2e.witness import until

PAGE = Path(__file__).parents[2] / "docs/reference/api.md"
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text("utf-8"), re.S | re.M)
REFUSED = {"imge": 400, "projects/team-b?dryRun": 200}
"""Words of an example -> the status that it shows; all other examples succeed."""


def commands(block: str) -> list[str]:
    """The commands with their continuation lines; each ends with closed quotes and without a backslash."""
    found, text = [], ""
    for line in block.splitlines():
        text += line + "\n"
        if text.count("'") % 2 == 0 and not line.endswith("\\"):
            found.append(text)
            text = ""
    assert not text
    return found


def _watched(done: Done) -> bool:
    assert done.code == 0, done.said
    return "event: " in done.out or ": connected" in done.out


@pytest.mark.slow
def test_every_example_is_answered(stage: Stage, tmp_path: Path) -> None:
    assert stage.run("pliant up --tls --simulate 1x2").code == 0
    reader = Reader(stage, tmp_path)
    script = tmp_path / "example.sh"
    etag, secret = "", (stage.state / "token").read_text().strip()
    typed = [command for block in BLOCKS for command in commands(block)]
    assert len(typed) >= 14
    for command in typed:
        head = f"set -eu; URL={reader.url}; TOKEN={reader.token}; SECRET={secret}; ETAG='{etag}'\n"
        if command.startswith("ETAG="):
            script.write_text(f'{head}{command}echo "$ETAG"\n')
            done = stage.run(f"bash {script}")
            etag = done.out.strip()
            assert done.code == 0 and etag, done.said
            continue
        if "/watch" in command:
            script.write_text(head + command)
            until(lambda: _watched(stage.run(f"bash {script}")), "the stream to begin within its 3 s", 120)
            continue
        script.write_text(head + command.replace("curl -s", "curl -s -w '\\n%{http_code}'", 1))
        done = stage.run(f"bash {script}")
        assert done.code == 0, f"{command}\n{done.said}"
        body, _, status = done.out.rpartition("\n")
        wanted = next((code for word, code in REFUSED.items() if word in command), 0)
        assert int(status) == wanted if wanted else 200 <= int(status) < 300, f"{command}\n{done.out}"
        json.loads(body)
