"""Passes logs, commands and ports of workers from worker clusters to users with a grant in the manager."""
