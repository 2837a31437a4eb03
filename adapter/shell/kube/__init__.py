"""Requests, watches and stores of one API server."""
