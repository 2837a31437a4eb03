"""The lies of a hostile worker cluster, as data: a sort, a number that it is drawn by, and so the answer it replaces.

Nothing is sent, kept or counted here (liar.py does that), and no clock is read: a lie to a request is always one
answer. No answer is held in one piece: 150 MB are a few bytes that are repeated. It knows no kind of object beyond the
common frame, and what a queue promises.
"""

import functools
import json
import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from adapter.objects.unstructured import Raw
from hack.testbed.oddities import EVENTS, FORGED, ODD, bent, granted, specimen
from hack.testbed.said import CHUNKED, LAST_CHUNK, Answer, Asked, Said, as_json, chunk, event, head, stream, whole

MIB = 2**20
HUGE = 150 * MIB
ENDLESS = "endless"  # the beginning of the tokens of lists without an end
_CODES = (100, 101, 199, 201, 204, 205, 206, 304, 400, 401, 403, 404, 409, 410, 418, 422, 429,
          500, 503, 504, 599, 700, 999)  # fmt: skip
_TYPES = (*["application/json"] * 3, "text/html", "application/json; charset=utf-16",
          "application/vnd.kubernetes.protobuf", ";")  # fmt: skip
_TOLD = 100  # lines of a stream, at most; each is a lie of its own
_FLOOD = 7 * MIB  # of one answer: as much as a page of a list may have
_PATIENCE = 6.0  # seconds of silence or near silence: longer than a client under test waits


@dataclass(frozen=True, slots=True)
class Lie:
    """One lie: what it says is drawn from its number, and from what was asked."""

    sort: str
    number: int


_Sort = Callable[[random.Random, Asked, Raw, str], Answer]


def answer(lie: Lie, asked: Asked, true: Raw, elsewhere: str) -> Answer:
    """The answer in place of `true`, a list's body where many are asked for; `elsewhere` is a URL of another server.

    At least one of the parts counts as a lie. The connection ends with it.
    """
    return SORTS[lie.sort](random.Random(lie.number), asked, true, elsewhere)


# --- what is lied about ----------------------------------------------------------------------------------------------


def _things(draw: random.Random, asked: Asked, true: Raw) -> list[Any]:
    """Objects of that kind, present or possible: marked as ours where our objects are asked for."""
    there = true.get("items") if "items" in true else [true]
    made = [specimen(asked, str(draw.randrange(50)), max(1, asked.version) + draw.randrange(5)) for _ in range(2)]
    return [*(there or ()), *made]


def _wrong_types(draw: random.Random, asked: Asked, true: Raw, _: str) -> Answer:
    """An answer with odd values in some places; of a list, some in one of its objects."""
    things = _things(draw, asked, true)
    if asked.watch:
        kinds = ("ADDED", "MODIFIED", "DELETED")
        return stream(event(draw.choice(kinds), bent(draw, draw.choice(things))) for _ in range(draw.randint(1, _TOLD)))
    if "items" in true and draw.random() < 0.8:
        return as_json({**true, "items": [bent(draw, one, draw.randint(0, 2)) for one in things]})
    return as_json(bent(draw, true, draw.randint(1, 3)))


def _wrong_things(draw: random.Random, asked: Asked, true: Raw, _: str) -> Answer:
    """JSON that is not what was asked for."""
    others: list[Any] = [
        *ODD, {"kind": "Status", "status": "Success"}, {"items": "x"}, {"items": {}}, {"items": list(ODD)},
        {**true, "items": None},
        {**true, "metadata": None}, {**true, "metadata": {}}, {**true, "metadata": draw.choice(ODD)}, [true],
        {"a": true}, specimen(asked, "x", 1),
    ]  # fmt: skip
    if asked.watch:
        lines = (event(draw.choice(EVENTS), draw.choice(others)) for _ in range(draw.randint(1, _TOLD)))
        return stream(draw.choice([line, json.dumps(draw.choice(others)).encode()]) for line in lines)
    return as_json(draw.choice(others))


def _garbage(draw: random.Random, asked: Asked, true: Raw, _: str) -> Answer:
    """Success, and then what is no JSON, or only looks so."""
    body = json.dumps(true).encode()
    said = draw.choice([
        b"<html><body>Please sign in.</body></html>", b"", b"ok", draw.randbytes(300), body[: len(body) // 2],
        body + body, b"\xef\xbb\xbf" + body,
        b"[" * 100_000, b'{"a":' * 100_000, b'{"items": [NaN, Infinity]}', b'{"metadata": {"name": "\\ud800"}}',
        b'{"a": 1, "a": 2}', b"null", b"\x00" * 99,
        b'{"items": [' + b"1" * 5000 + b"]}", body.decode().encode("utf-16"), body.replace(b":", b"\n:\n"),
    ])  # fmt: skip
    kind = draw.choice(_TYPES)
    if asked.watch:
        return stream([said.replace(b"\n", b" "), said, event("ADDED", {})])
    return whole(said, kind=kind)


def _huge(draw: random.Random, _: Asked, __: Raw, ___: str) -> Answer:
    """150 MB that begin as what was asked for: as they are, or as one chunk after the other."""
    # Objects whose text has no end, and a list of empty objects: a few bytes are then many objects.
    begun, part = draw.choice(
        [(b'{"a": "', b"x" * MIB), (b'{"items": [{}', b",{}" * (MIB // 3 + 1)), (b"", b" " * MIB)]
    )
    if draw.random() < 0.5:
        return (
            Said(head("200 OK", f"Content-Length: {HUGE + len(begun)}") + begun, lies=1),
            Said(part, times=HUGE // MIB),
        )
    return (
        Said(head("200 OK", CHUNKED), lies=1),
        *(Said(chunk(begun)) for _ in begun[:1]),
        Said(chunk(part), times=HUGE // MIB),
    )


@functools.cache
def _packed(begun: bytes, part: bytes, times: int, end: bytes) -> bytes:
    """So much of it, of which little goes over the wire."""
    squeeze = zlib.compressobj(6, wbits=31)
    parts = [squeeze.compress(begun), *(squeeze.compress(part) for _ in range(times)), squeeze.compress(end)]
    return b"".join([*parts, squeeze.flush()])


def _bomb(draw: random.Random, _: Asked, __: Raw, ___: str) -> Answer:
    """150 MB that are packed into a few."""
    begun, part, end = draw.choice([(b'{"a": 1', b" " * MIB, b"}"), (b'{"items": [{}', b",{}" * (MIB // 3 + 1), b"]}")])
    return whole(_packed(begun, part, HUGE // MIB, end), "200 OK", "Content-Encoding: gzip")


def _dense(draw: random.Random, asked: Asked, true: Raw, _: str) -> Answer:
    """Within every bound in bytes, and as many Python objects as possible: lists in lists, in one object."""
    inner = b",".join([draw.choice([b"[]", b"{}", b"[[]]", b"1.5"])] * int(10 ** draw.uniform(0, 5.8)))
    thing = specimen(asked, str(draw.randrange(50)), max(1, asked.version) + 1)
    body = json.dumps({**thing, "spec": {"dense": ["DENSE"]}}).encode().replace(b'"DENSE"', inner)
    if asked.watch:
        return stream([b'{"type": "ADDED", "object": ' + body + b"}"] * 3)
    if "items" in true:
        about = json.dumps(true.get("metadata")).encode()
        return whole(b'{"metadata": ' + about + b', "items": [' + body + b"]}")
    return whole(body)


def _drip(draw: random.Random, asked: Asked, true: Raw, _: str) -> Answer:
    """Byte by byte, in its head or behind it; a watch that says nothing that way seems alive."""
    pause = draw.choice([0.05, 0.4])
    times = int(_PATIENCE / pause)
    begun = draw.choice([b"", b"HTTP/1.1 200 OK\r\nX: ", head("200 OK", "Content-Length: 99999")])
    if asked.watch and draw.random() < 0.7:
        return (Said(head("200 OK", CHUNKED), lies=1), Said(chunk(draw.choice([b"\n", b" ", b"{"])), times, pause))
    if draw.random() < 0.3:
        return (
            Said(head("200 OK", "Content-Length: 99999") + json.dumps(true).encode(), lies=1),
            Said(b" ", times, pause),
        )
    return (Said(begun, lies=1), Said(b"x", times, pause))


def _silence(draw: random.Random, asked: Asked, _: Raw, __: str) -> Answer:
    """Nothing at all, or nothing after a promising head."""
    begun = head("200 OK", CHUNKED) if asked.watch else draw.choice([b"", head("200 OK", "Content-Length: 9")])
    return (Said(begun, lies=1), Said(b"", pause=_PATIENCE))


def page(token: str, asked: Asked) -> Answer:
    """The next page of a list without an end, which is no lie of its own: else one list were thousands."""
    _, number, size, each = token.split("-")
    items = [specimen(asked, f"{number}-{one}", 5) for one in range(int(size))]
    for one in items:
        one["spec"]["text"] = "x" * int(each)
    following = "-".join([ENDLESS, str(int(number) + 1), size, each])
    (said,) = as_json({"metadata": {"resourceVersion": "5", "continue": following}, "items": items})
    return (Said(said.what, lies=int(number == "0")),)


def _endless(draw: random.Random, asked: Asked, true: Raw, _: str) -> Answer:
    """A list whose pages name another page each, small, large or empty; or whose every page names itself."""
    if asked.watch or "items" not in true:
        return as_json({"metadata": {"continue": f"{ENDLESS}-0-1-1"}, "items": []})
    if draw.random() < 0.2:
        return as_json(
            {
                **true,
                "metadata": {"resourceVersion": "5", "continue": draw.choice(["more", "x" * 9000, 5, ["x"], "\n"])},
            }
        )
    size, each = draw.choice([(0, 0), (1, 10), (250, 100), (250, 20_000), (2, 1_500_000)])
    return page(f"{ENDLESS}-0-{size}-{each}", asked)


def _backwards(draw: random.Random, asked: Asked, true: Raw, _: str) -> Answer:
    """A cluster that is of an older version than it was, or far ahead, or of one that is none."""
    before = str(max(0, asked.version - draw.randrange(1000)))
    versions: list[Any] = ["1", "0", "-1", "", "soon", 5, None, "9" * 19, "9" * 30, before]
    if asked.watch:
        lines = []
        for _each in range(draw.randint(1, _TOLD)):
            thing = specimen(asked, str(draw.randrange(9)), 1)
            thing["metadata"]["resourceVersion"] = draw.choice([*versions, str(asked.version + draw.randrange(9))])
            lines.append(event(draw.choice(["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]), thing))
        return stream(lines)
    metadata = true.get("metadata")
    return as_json(
        {
            **true,
            "metadata": {**(metadata if isinstance(metadata, dict) else {}), "resourceVersion": draw.choice(versions)},
        }
    )


def _ends(draw: random.Random, asked: Asked, true: Raw, _: str) -> Answer:
    """An end at once: of the connection, the head, the body, or a watch before its first event or in the middle of a
    line.
    """
    body = json.dumps(true).encode()
    full = head("200 OK", f"Content-Length: {len(body)}") + body
    said = draw.choice([b"", b"HTTP", full[:40], head("200 OK", f"Content-Length: {len(body)}"), full[:-1]])
    if asked.watch:
        half = chunk(event("ADDED", specimen(asked, "x", asked.version + 1)))[:-20]
        said = draw.choice(
            [said, head("200 OK", CHUNKED), head("200 OK", CHUNKED) + LAST_CHUNK, head("200 OK", CHUNKED) + half]
        )
    return (Said(said, lies=1),)


def _redirect(draw: random.Random, asked: Asked, _: Raw, elsewhere: str) -> Answer:
    """A redirect to a server that wants the token, in every possible way."""
    status = draw.choice(["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent", "200 OK"])
    to = draw.choice(
        [elsewhere + asked.path, elsewhere, asked.path, "//elsewhere.invalid/", "file:///etc/passwd", "http://[", ""]
    )
    more = ("Set-Cookie: session=stolen; Path=/", f"Refresh: 0; url={elsewhere}", f"Link: <{elsewhere}>; rel=preload")
    return whole(b'{"kind": "Status"}', status, f"Location: {to}", *more)


def _refusal(draw: random.Random, asked: Asked, true: Raw, _: str) -> Answer:
    """A status that is none of success, with what an API server would say, or not; a watch tells it as an event."""
    code = draw.choice(_CODES)
    said = {"kind": "Status", "code": code, "reason": draw.choice(["Forbidden", "AlreadyExists", "Expired", *ODD])}
    said["message"] = draw.choice([f"no\n{FORGED}", f"\x1b[2J{FORGED}", "metadata.uid", "m" * 100_000, *ODD])
    if asked.watch and draw.random() < 0.5:
        odd = {**said, "code": draw.choice([code, *ODD])}
        return stream([event("ERROR", odd)])
    if code < 200:  # an informational one, again and again
        return (Said(f"HTTP/1.1 {code} Soon\r\n\r\n".encode(), draw.choice([1, 5000]), lies=1), *as_json(true))
    return whole(json.dumps(said).encode(), f"{code} Refused", f"Retry-After: {draw.choice([0, 99999999, 'soon'])}")


def _frame(draw: random.Random, _: Asked, true: Raw, __: str) -> Answer:
    """Answers that HTTP hardly allows, or not at all."""
    body = json.dumps(true).encode()
    length = f"Content-Length: {len(body)}"
    said = draw.choice([
        b"SSH-2.0-OpenSSH_9.6\r\n", draw.randbytes(200), b"HTTP/9.9 200 OK\r\n\r\n", b"HTTP/1.1 2000000 OK\r\n\r\n",
        b"HTTP/1.1 200\r\n" * 9,
        head("200 OK", "X: " + "y" * MIB), head("200 OK", *(f"X-{one}: y" for one in range(20_000))),
        head("200 OK", "Content-Length: -5") + body,
        head("200 OK", length, "Content-Length: 1") + body, head("200 OK", length, CHUNKED) + body,
        head("200 OK", CHUNKED) + b"zz\r\n",
        head("200 OK", CHUNKED) + b"-1\r\n", head("200 OK", CHUNKED) + b"f" * 5000,
        head("200 OK", CHUNKED) + b"1;" + b"x" * 70_000 + b"\r\na\r\n",
        head("200 OK", CHUNKED) + chunk(body) + b"0\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
        head("200 OK", "Content-Length: 99999999999999999999999") + body,
        head("200 OK", "Content-Encoding: br", length) + body, head("200 OK", "Content-Encoding: gzip", length) + body,
        head("200 OK", "Content-Encoding: gzip, gzip", length) + body, head("200 OK", "X: \x00\x01") + body,
        head("200 OK\r\nX: y\r\n\r\n", length) + body,
        b"HTTP/1.1 200 OK\nContent-Type: application/json\n\n" + body,
        (head("200 OK", length) + body).replace(b"close", b"keep-alive") * 2,
        head("101 Switching Protocols", "Upgrade: websocket"), head("200 OK\nX: " + FORGED),
    ])  # fmt: skip
    return (Said(said, lies=1),)


def _promise(draw: random.Random, asked: Asked, true: Raw, _: str) -> Answer:
    """Capacity without end, and every request is granted: each object as if its queue had given it everything."""
    things = [granted(one) for one in _things(draw, asked, true)]
    if asked.watch:
        newer = asked.version + 1 + draw.randrange(9)
        told = (
            {**one, "metadata": {**one["metadata"], "resourceVersion": str(newer + at)}}
            for at, one in enumerate(things)
        )
        return stream(event("MODIFIED", one) for one in told)
    return as_json({**true, "items": things} if "items" in true else granted(true))


def _flood(draw: random.Random, asked: Asked, true: Raw, _: str) -> Answer:
    """Always more objects, each as an API server would write it, of some size: as events, or as one page."""
    number, each = draw.randrange(10**9), draw.choice([10, 1_000, 100_000, 1_000_000])
    many = min(_TOLD, _FLOOD // each)
    things = (specimen(asked, f"{number}-{one}", asked.version + 1 + one) for one in range(many))
    full = [{**one, "spec": {**one["spec"], "text": "x" * each}} for one in things]
    if asked.watch:
        return stream(event("ADDED", one) for one in full)
    return as_json({**true, "items": full} if "items" in true else full[0])


def _gone(draw: random.Random, asked: Asked, true: Raw, _: str) -> Answer:
    """There is nothing here, or not any more, or under other uids."""
    things = [one for one in _things(draw, asked, true) if isinstance(one, dict)]
    if asked.watch:
        return stream(event("DELETED", one) for one in things)
    if "items" in true and draw.random() < 0.5:
        return as_json({**true, "items": []})
    others = [
        {**one, "metadata": {**(one.get("metadata") or {}), "uid": f"other-{draw.randrange(99)}"}} for one in things
    ]
    return as_json({**true, "items": others} if "items" in true else others[0])


SORTS: Mapping[str, _Sort] = {
    "wrong types": _wrong_types,
    "wrong things": _wrong_things,
    "garbage": _garbage,
    "a huge body": _huge,
    "a bomb": _bomb,
    "dense": _dense,
    "a slow drip": _drip,
    "silence": _silence,
    "endless pages": _endless,
    "versions that run backwards": _backwards,
    "ends at once": _ends,
    "a redirect": _redirect,
    "a refusal": _refusal,
    "no HTTP": _frame,
    "promises": _promise,
    "a flood": _flood,
    "gone": _gone,
}

# For drawing: lies that make a client wait for its timeout are drawn less often than those that it takes in
# milliseconds.
SLOW = ("a slow drip", "silence")
DRAWN = (*SORTS, *(sort for sort in SORTS if sort not in SLOW for _ in range(5)))
