"""All submit commands: the options of both editions, and the request built from them."""
