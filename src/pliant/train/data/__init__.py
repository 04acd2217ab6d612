"""The order of records, their division into batches, and the datasets that they are read from."""
