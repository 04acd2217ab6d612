"""What travels between server and clients. Each type is written once: Run:ai's field names, and our own.

Every type is a TypedDict, so a client sends and reads plain JSON. `pliant.api.schemas.models` makes from them
the models by which the server checks what it is sent, and which OpenAPI shows. Times are RFC 3339 in UTC with
milliseconds, or seconds where the name ends so; amounts of GPU are numbers of GPUs (0.5), of memory text with
the unit that people wrote (5G). In a request a key that is not sent, or is null, says nothing; where null
means something, the type has `| None`. Fields below "ours" are not Run:ai's.
"""

TROUBLE = "Pliant-Trouble"
"""Header of every answer while something keeps the server from scheduling: what it is, for people."""
