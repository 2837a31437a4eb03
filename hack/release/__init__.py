"""What does one download? Manifests by role, components and a Helm chart, all made of the same overlays, and the plugin for Krew.

It writes files and asks no cluster. The image is built elsewhere, by the Dockerfile; here it is only named.
"""
