"""Who is looked at when, and which of the replicas does it?

Runs the loop: a key is due, facts are read, a decision is asked for, its actions are done. It decides nothing about them.
"""
