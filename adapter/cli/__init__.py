"""What do people and the Deployment start: the verbs of `kubectl rayspan`, and the controller?

A verb reads, asks and prints; what is decided in it is decided by the pure rooms.
"""
