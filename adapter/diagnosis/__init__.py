"""Where is a job, and which one link of its way keeps it from running? And what does the whole fleet hold?

It reads the manager's objects alone, and says of them what people ask. What happens next to a job is decided elsewhere.
"""
