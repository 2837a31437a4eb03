"""How do the stores become what a planner sees, and its plan a Placement?

Reads only; who fits where is for `planning`, and the Placement is written by `shell/write`.
"""
