"""Reports for people: where a job is, which stage holds it up, and what the fleet holds, from the manager's objects.

`gang` and `worker` decide what happens to a job.
"""
