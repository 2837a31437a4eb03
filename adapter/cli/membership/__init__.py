"""How does a cluster become a worker of a manager, how is its login renewed, and how does it leave?

The requests to both sides and what is told of them; which objects these are, and what must not be mixed up, is for `membership`.
"""
