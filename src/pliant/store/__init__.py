"""Tables, queries and migrations on SQLAlchemy Core: SQLite by default, PostgreSQL as an option.

`open_store(path or URL)` gives a pliant.control.ports.Store; `restore(source, target)` loads what its
backup() wrote.
"""

import pliant.compiled  # noqa: F401 - before all that imports the core
from pliant.store.archive import restore
from pliant.store.codec import CodecError
from pliant.store.database import Database, open_store
from pliant.store.errors import StoreBusy, StoreError
from pliant.store.schema import UNSEALED

__all__ = ["UNSEALED", "CodecError", "Database", "StoreBusy", "StoreError", "open_store", "restore"]
