"""Run by alembic: applies the versions in the transaction that pliant.store.migrate has begun."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    render_as_batch=True,  # SQLite alters a table by copying it
)
context.run_migrations()
