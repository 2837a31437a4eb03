"""Do jobs survive whatever breaks? Faults drawn from a seed strike jobs that run, and after each one the books must be right."""
