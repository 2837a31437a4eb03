"""How much memory does an object take, as it is kept: a tree of dicts, lists and texts?

Reckoned from its JSON, by what is counted in it in half of the time that reading it takes, and hardly ever less than it is: who sends
what is short on the wire and large in memory, such as `[{},{}]`, is found out before it is read. What is allowed is for `memory_budget.py`
and `response_limits.py` to say.
"""

from typing import Any

import orjson

# CPython 3.11, as sys.getsizeof says it, with what the garbage collector puts before it. A dict of up to five keys takes 184
# bytes, and then some 20 more for each. A text takes 49 and its characters: four bytes for each, where one of them is no ASCII.
# Keys are counted each time, though those of an honest object are shared with all others of its kind, and so are spare places in
# small dicts: what an API server says weighs twice of what it takes (8 KB of a pod's JSON: 31 KB, and a weight of 60), and what is made up
# for it (up to 24 times its JSON) about what it takes. Measured with tracemalloc, and held by a test.
_DICT, _MEMBER, _LIST, _ENTRY, _TEXT, _NUMBER = 200, 16, 72, 8, 56, 32
_WIDEST = 4


def weigh_object(raw: Any) -> int:
    """The bytes that something takes that was read from JSON."""
    try:
        return weigh_json(orjson.dumps(raw))
    except TypeError:  # nested deeper than orjson writes, which reads four times as deep
        return _weigh_tree(raw)


def weigh_json(data: bytes | bytearray) -> int:
    """The bytes that JSON will take once it is read."""
    texts, members = data.count(b'"') // 2, data.count(b":")
    dicts, lists = data.count(b"{"), data.count(b"[")
    values = data.count(b",") + dicts + lists  # each stands behind one of these
    numbers = max(values - dicts - lists - (texts - members), 0)
    holders = dicts * _DICT + members * _MEMBER + lists * _LIST + values * _ENTRY
    return holders + texts * _TEXT + numbers * _NUMBER + len(data) * (1 if data.isascii() else _WIDEST)


def _weigh_tree(raw: Any) -> int:
    """The same, level by level."""
    weight, left = 0, [raw]
    while left:
        one = left.pop()
        weight += _ENTRY
        if isinstance(one, dict):
            weight += _DICT + _MEMBER * len(one)
            left += [*one, *one.values()]
        elif isinstance(one, list):
            weight += _LIST
            left += one
        else:
            weight += _TEXT + _WIDEST * len(one) if isinstance(one, str) else _NUMBER
    return weight
