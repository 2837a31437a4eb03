"""May a request reach a worker's containers in its worker cluster, and as which request does it go there?

Who may have a grant is not judged here: the API server does it, by a policy, with the rights of whoever creates one.
"""
