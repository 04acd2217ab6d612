"""Why a workload waits, what would let it start, and when it will: questions that change nothing."""
