"""How does somebody with rights in the manager alone reach a worker: its log, a command in it, its ports, its files?"""
