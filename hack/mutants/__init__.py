"""Would a test notice? Breaks of the product, kept as patches: each must turn a named test red.

A patch is applied to a copy of the checkout, never to the checkout itself. Which tests there are is not known here: a patch
names them as text.
"""
