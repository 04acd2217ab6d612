"""All submits: the options of both editions, and the request that they make."""
