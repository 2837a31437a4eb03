"""`kubectl rayspan preflight`: the verb, and what it looks at."""
