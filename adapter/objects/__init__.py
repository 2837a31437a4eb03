"""What do API objects say: Workloads, Placements, shares, worker pods, RayJobs and the objects that admins write?

Everything is read tolerantly and nothing is decided: an absent field is empty, an odd one is a fault of the object that has it.
"""
