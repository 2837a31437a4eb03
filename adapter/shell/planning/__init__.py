"""How do the stores become what a planner sees, and its plan a Placement?"""
