"""The files of a release: manifests by role, components and a Helm chart, all of the same overlays, and Krew's plugin.

It writes files and reads no cluster. The Dockerfile builds the image; here it is only named.
"""
