"""One worker: the script's interface, the loop of steps, the model, its checkpoints."""
