"""Admission webhooks: the gate on worker pods, and warnings for users who apply objects.

They run in an optional Deployment, without the controller's rights.
"""
