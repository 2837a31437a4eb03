"""Admission webhooks: the gate on worker pods, and warnings for users who apply objects.

An optional Deployment of its own, beside the controller and without its rights. kopf calls a handler for each review;
`admission` decides the response. Nothing is written.
"""
