"""Commands for existing workloads: list, describe, wait, suspend, cancel, why."""
