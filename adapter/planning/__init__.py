"""Plans a gang on candidates that were read from the stores. `gang` decides what becomes of a plan."""
