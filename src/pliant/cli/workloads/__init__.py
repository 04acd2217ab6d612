"""What is done with workloads that exist: list, describe, logs, exec, suspend, why."""
