"""The master of a job: who is in it, what was done, who leases which shard. No torch."""
