"""How does a manager pod become a remote pod, and what must stand beside it there?

Pure text work on bodies: whether a pod may go at all is for `admission`, when it goes for `worker`.
"""
