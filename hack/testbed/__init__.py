"""What do tests, the demo, the benches and the trials all stand on: clusters by their kubeconfigs, an installed Rayspan, jobs, stages?

It starts no cluster (`hack/lab` does), and judges nothing.
"""
