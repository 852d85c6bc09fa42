"""Alembic's entry: runs the migrations on the connection that `iowatch.store.engine.migrate` hands over."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, render_as_batch=connection.dialect.name == "sqlite")
# The caller holds the transaction.
context.run_migrations()
