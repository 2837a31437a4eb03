"""The subcommands (verbs) of `kubectl rayspan`, and the processes that Deployments run.

A verb reads, requests and prints. The pure packages decide.
"""
