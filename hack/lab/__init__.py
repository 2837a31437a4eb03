"""The lab: real Kubernetes clusters on one machine, without Docker. It never touches a cluster it did not start."""
