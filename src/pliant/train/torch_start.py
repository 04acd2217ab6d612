"""Imports torch with three quarters of the processor time that it takes otherwise."""

import gc


def import_torch(*, optimizers: bool) -> None:
    """Without a search for garbage, of which imports make none: torch makes half a million objects.

    `optimizers`: also what each of them imports when it is made, 900 more modules.
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
