"""Usage: python -m pliant.engines.local.images.hpo

One experiment of a grid search over batch size and learning rate, picked with runai.hpo. Tasks of one job
share the search by their working folder, or by the folder in HPO_ROOT.

Environment: QUICKSTART_EPOCHS=N (30) and QUICKSTART_STEP_SECONDS=S (0.05); an epoch has 20 steps.
Exit status: 0 done, 1 broken off (the next task picks the experiment again), 2 wrong settings.
"""

import os
import sys
import time
from typing import Any

from pliant.engines.local.images.hpo.runai import hpo
from pliant.engines.local.images.quickstart.settings import ONE_THREAD, SettingsError, read_settings

GRID: dict[str, list[Any]] = {"batch_size": [16, 32, 64], "lr": [1.0, 0.1, 0.01, 0.001]}
STEPS = 20
"""Per epoch."""


def main() -> int:
    os.environ.update(ONE_THREAD)  # before NumPy is loaded
    try:
        pause = read_settings({"QUICKSTART_STEP_SECONDS": "0.05", **os.environ}).step_seconds
        epochs = read_settings({"QUICKSTART_STEPS": os.environ.get("QUICKSTART_EPOCHS", "") or "30"}).steps
    except SettingsError as error:
        said = str(error).replace("QUICKSTART_STEPS", "QUICKSTART_EPOCHS")
        print(f"quickstart-hpo: {said}", file=sys.stderr)
        return 2
    hpo.init(os.environ.get("HPO_ROOT", "."), "hpo")
    config = hpo.pick(GRID)
    print(f"batch_size={config['batch_size']} lr={config['lr']}", flush=True)
    import numpy as np

    from pliant.engines.local.images.quickstart.digits import Digits
    from pliant.engines.local.images.quickstart.network import accuracy, initial_parameters, loss_and_gradient

    digits, weights = Digits(0), initial_parameters(0)
    gradient = np.zeros_like(weights)
    for epoch in range(epochs):
        for step in range(epoch * STEPS, (epoch + 1) * STEPS):
            images, labels = digits.batch(step)
            count = config["batch_size"]
            loss_and_gradient(weights, images[:count], labels[:count], gradient)
            weights -= config["lr"] / count * gradient
            time.sleep(pause)
        found = accuracy(weights, *digits.held_out())
        hpo.report(epoch=epoch, metrics={"accuracy": round(found, 4)})
        print(f"epoch={epoch} accuracy={found:.4f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
