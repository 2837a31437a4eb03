"""The demo: the main job, once, on real clusters, with proof. It judges what it shows and never claims more."""
