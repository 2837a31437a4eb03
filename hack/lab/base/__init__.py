"""The foundations of the lab: its definition, paths and versions, running commands, and progress."""
