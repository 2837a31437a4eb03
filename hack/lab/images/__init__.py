"""The images of the lab's clusters, and their builds without a registry."""
