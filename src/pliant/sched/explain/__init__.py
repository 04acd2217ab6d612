"""Explains why a workload waits, what would let it start, and when it will start; changes nothing."""
