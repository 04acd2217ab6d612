"""Routes about workloads: submitted, shown, followed, explained, kept."""
