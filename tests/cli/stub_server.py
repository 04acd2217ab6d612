"""A process that plays the server for `up`, `down` and `restart`: python stub_server.py MODE STATE [SECONDS]

serve: writes its record, answers, and ends on a shutdown request. fail5: prints an error and exits with 5.
silent: never answers. crash: ends with a traceback.
"""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.cli.fake import TOKEN, Answer, serving

SHUTDOWN = "/api/v1/server/shutdown"


def serve(state: Path, argv: list[str]) -> None:
    with serving() as fake:
        about = {
            "url": fake.url,
            "pid": os.getpid(),
            "version": "0.1.0",
            "state": str(state),
            "simulated": True,
            "tasksRunning": int(os.environ.get("STUB_TASKS", "0")),
            "uptime": 3725.0,
        }

        def shutdown(request):
            (state / "asked.json").write_text(json.dumps(request.body))
            return Answer(202, {"status": "stopping"})

        routes = fake._routes()
        fake._routes = lambda: (
            ("GET", "/api/v1/server", lambda request: Answer(body=about)),
            ("POST", SHUTDOWN, shutdown),
            ("GET", "/api/v1/server/debug-bundle", lambda request: Answer(body=b"PK-a-zip")),
            ("POST", "/api/v1/server/backup", lambda request: Answer(body={"path": request.body["path"]})),
            *routes,
        )
        (state / "token").write_text(TOKEN)
        record = {**about, "simulate": ["1x2"], "port": 0, "notice": os.environ.get("STUB_NOTICE", "")}
        (state / "argv.json").write_text(json.dumps(argv))
        (state / "new.json").write_text(json.dumps(record))
        (state / "new.json").rename(state / "server.json")  # last, and by rename: clients wait for this file
        over = time.monotonic() + 600
        while SHUTDOWN not in fake.answered and time.monotonic() < over:  # not before that answer is sent
            time.sleep(0.01)
        (state / "server.json").unlink()


if __name__ == "__main__":
    mode, folder = sys.argv[1], Path(sys.argv[2])
    if mode == "serve":
        serve(folder, sys.argv[3:])
    elif mode == "fail5":
        print("2026-01-01 INFO starting", file=sys.stderr)
        print(f"pliant: A server already uses {folder}.", file=sys.stderr)
        print("2026-01-01 INFO what that server logs at this moment", file=sys.stderr)
        sys.exit(5)
    elif mode == "crash":
        raise RuntimeError("out of luck")
    elif mode == "silent":
        time.sleep(600)
