"""The master of a job: its members, its ledger and its shard queues. No torch."""
