"""What do the stores say of one gang and of one worker, as the facts that a decision takes?

Reads only; it decides nothing and writes nothing.
"""
