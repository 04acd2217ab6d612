"""Imports torch in three quarters of the CPU time of a plain import."""

import gc


def import_torch(*, optimizers: bool) -> None:
    """Import torch with garbage collection off: the import creates half a million objects and no garbage.

    `optimizers`: also import the 900 modules that every optimizer imports when it is created.
    """
    searched = gc.isenabled()
    gc.disable()
    try:
        import torch

        if optimizers:
            import torch._dynamo  # noqa: F401
    finally:
        if searched:
            gc.enable()
