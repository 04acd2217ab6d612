"""The meeting of a job's workers: a generation's communicator, and the state for new workers."""
