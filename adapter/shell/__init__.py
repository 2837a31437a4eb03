"""The only package with a network, a clock and tasks: it observes, lets the pure core decide, and executes."""
