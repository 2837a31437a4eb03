"""Which programs does the lab need, and how are they built when they are not there?"""
