"""What does a platform engineer download? Manifests by role, components and a Helm chart, all made of the same overlays.

It writes files and asks no cluster. The image is built elsewhere, by the Dockerfile; here it is only named.
"""
