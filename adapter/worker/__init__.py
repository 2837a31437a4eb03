"""What happens next to one worker pod, from its creation in the manager to the end of its copy?

Decides from facts and the time, and returns actions; where it goes was planned before.
"""
