"""Tables, queries and migrations on SQLAlchemy Core: SQLite by default, PostgreSQL as an option."""
