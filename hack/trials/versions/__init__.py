"""With which versions of Kubernetes, Kueue and KubeRay does Rayspan work? Pairs of manager and workers, each on a lab of its own."""
