"""How long `pliant list` takes with 20 workloads, against `python -c pass`. Goal: at most 8 times as long.

Input: made here. 20 trainings of one GPU each, 16 run (`sleep infinity`) and 4 wait.
References in the same run: `python -c pass`, alternating with the measured commands; the server's answer
alone, to a client that is already connected.
"""

from __future__ import annotations

import sys

from measure import Server, alternately, head, python_pass, row, tiny, training

WORKLOADS, GPUS = 20, 16


def main() -> int:
    rounds = 3 if tiny(__doc__) else 25
    with Server(f"2x{GPUS // 2}") as server, server.client() as client:
        for number in range(WORKLOADS):
            client.submit("Training", training(f"w{number}", "sleep", "infinity"))
        assert len(server.run("list", "--no-headers").splitlines()) == WORKLOADS
        python, table, json, asked, version = alternately(
            rounds,
            python_pass,
            lambda: server.run("list"),
            lambda: server.run("list", "-o", "json"),
            lambda: list(client.workloads("default")),
            lambda: server.run("--version"),
        )
    head(f"{WORKLOADS} workloads, median of {rounds}; python -c pass {python:.2f} ms")
    row("pliant list", table, "ms", target=round(8 * python, 1), to=(python, "python -c pass"))
    row("pliant list -o json", json, "ms", to=(python, "python -c pass"))
    row("pliant --version", version, "ms", to=(python, "python -c pass"))
    row("the server's answer alone", asked, "ms", to=(python, "python -c pass"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
