"""The verbs of `kubectl rayspan` with their options and help texts.

A verb's implementation is imported when it runs, so that help, version and completion are fast.
"""
