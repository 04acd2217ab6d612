"""The plan of this run; `runai.elastic.torch.init` sets it."""

from typing import Any

global_batch_size: int = 0
"""Records of one update of the model, for any number of GPUs."""

gpus: int = 0
"""GPUs that share each step; 1 on a machine without GPUs."""

steps: int = 0
"""Micro-batches in one update."""

batch_size: int = 0
"""Most records of one micro-batch on one GPU; at most the declared maximum."""

master: bool = True
"""True in the process that does what must be done once; always True, since there is one process."""

hvd: Any = None
"""Horovod, which is not used: always None."""
