"""`kubectl rayspan preflight`: inspects clusters, runs probe pods, and prints the findings of `adapter.preflight`."""
