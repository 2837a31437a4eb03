"""May this job, this policy, this check, this layout of queues work at all?

Each answer is a sentence, or empty; nothing is planned here and no quota is counted.
"""
