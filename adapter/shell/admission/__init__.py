"""What does the API server get for an answer when it asks of an object that somebody applies: the gate on a pod, warnings for its user?

An optional Deployment of its own, beside the controller and without its rights. kopf hands each question to its handler; what is answered is
decided in `admission`. It writes nothing.
"""
