"""Builds what a planner sees from the stores, and turns its plan into a Placement."""
