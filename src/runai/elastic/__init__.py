"""The plan of this run, once `runai.elastic.torch.init` has made it."""

from typing import Any

global_batch_size: int = 0
"""Records of one update of the model, whatever the GPUs."""

gpus: int = 0
"""GPUs that share each step; 1 where there is none."""

steps: int = 0
"""Micro-batches that make one update."""

batch_size: int = 0
"""Records of one micro-batch on one GPU, at most; never over the maximum that was declared."""

master: bool = True
"""True where something is to be done once: in this process, as it is the only one."""

hvd: Any = None
"""Horovod; it is not used."""
