"""Brings up one cluster in its network namespace: API server, node, network, add-ons."""
