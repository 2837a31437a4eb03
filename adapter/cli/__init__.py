"""What a person or a Deployment starts."""
