"""State from rows: a savepoint made of tables, from which an application starts."""
