"""Logs, commands, ports and files of workers, for users with rights in the manager cluster only."""
