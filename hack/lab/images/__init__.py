"""Which images run in the lab's clusters, and how are they made without a registry?"""
