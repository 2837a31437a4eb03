"""Forecasts by Kueue's arithmetic the flavors that a podset gets in a tree of cohorts, and its capacity there."""
