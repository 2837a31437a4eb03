"""Validates jobs, policies, admission checks and queue layouts. Each result is a sentence, or empty."""
