"""How does one cluster come up in its network namespace: API server, node, network, add-ons?"""
