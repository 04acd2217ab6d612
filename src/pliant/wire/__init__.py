"""The types that travel between server and clients: Run:ai's field names and our own, each type once.

Every type is a TypedDict, so clients send and read plain JSON. `pliant.api.schemas.models` makes models from
them: the server checks requests with these, and OpenAPI shows them. Times are RFC 3339 in UTC with
milliseconds, or seconds where the name ends with Seconds. Amounts of GPU are numbers of GPUs (0.5), amounts
of memory are text with the unit that people wrote (5G). In a request a key that is missing or null sets
nothing; where null has a meaning, the type has `| None`. Fields below "ours" are not Run:ai's.
"""

TROUBLE = "Pliant-Trouble"
"""Header of every answer while the server is kept from scheduling; its value says why, for people."""
