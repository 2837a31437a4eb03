"""The base of tests, demo, benches and trials: clusters by kubeconfig, an installed Rayspan, jobs, stages.

It starts no cluster (`hack/lab` does), and judges nothing.
"""
