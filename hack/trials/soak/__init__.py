"""Does the controller keep anything of the jobs that are over: memory, tasks, watches?"""
