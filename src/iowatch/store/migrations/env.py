"""Alembic's entry point: runs the revisions on the connection of `iowatch.store.engine`."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, render_as_batch=connection.dialect.name == "sqlite")
# The caller opens and ends the transaction.
context.run_migrations()
