"""Does a RayService answer under load while it is upgraded, while a worker cluster is cut off, and while one is drained?"""
