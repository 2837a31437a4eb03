"""Which words may be typed after `kubectl rayspan`: the verbs with their options and their helps?

Nothing is done here. What a verb does is imported when it is run, so that help, version and completion come at once.
"""
