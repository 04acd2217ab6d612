"""Web pages. They call the API of the same process with their reader's own credentials, and nothing else."""
