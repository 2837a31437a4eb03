"""Executes actions as requests with preconditions, without reconsidering the decision."""
