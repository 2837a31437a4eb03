"""Joins the nodes of one RayCluster over clusters without a route: configurations, objects, and changes to pods."""
