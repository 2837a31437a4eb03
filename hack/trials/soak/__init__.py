"""Checks that the controller keeps nothing of finished jobs: memory, tasks, watches."""
