"""Measures a RayService under load during an upgrade, a cut of a worker cluster, and a drain."""
