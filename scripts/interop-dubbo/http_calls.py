"""Calls that begin as HTTP and end at a real provider of Dubbo."""

import json
import urllib.error
import urllib.parse
import urllib.request

from harness.process import PATIENCE

SAMPLER = "dev.remora.lab.Sampler"
STRING, LIST, MAP = "java.lang.String", "java.util.List", "java.util.Map"
DESCRIPTORS = {STRING: "Ljava/lang/String;", "int": "I", "long": "J", "double": "D", "boolean": "Z",
               LIST: "Ljava/util/List;", MAP: "Ljava/util/Map;"}

TEXTS = ["", "abc", "a+b &=%25 c", "naïve ☕ \"quoted\" \\ \n\t", "😀 and 𝄞", "x" * (1 << 20), "é" * 40_000]

# What echo is called with and must return, by its type.
VALUES = [
    *((STRING, s) for s in TEXTS), (STRING, None),
    *(("int", n) for n in (0, -1, 48, 2147483647, -2147483648)),
    *(("long", n) for n in (0, 1 << 40, (1 << 63) - 1, -1 << 63)),
    *(("double", d) for d in (0.5, -12.25, 1e300)),
    ("boolean", True), ("boolean", False),
    (LIST, []), (LIST, [1, "two", None, ["three"], True]),
    (MAP, {}), (MAP, {"a": 1, "b": ["c", {"d": [None]}], "é": "ü"}),
]


def post(port, path, body, headers):
    """The status, the headers and the text of a response."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=PATIENCE) as r:
            return r.status, r.headers, r.read().decode()
    except urllib.error.HTTPError as e:
        with e:
            return e.code, e.headers, e.read().decode()


def form(port, method, *args, **fields):
    """The contest's form call; args are (type, text)."""
    pairs = [("interface", SAMPLER), ("method", method),
             ("parameterTypesString", "".join(DESCRIPTORS[t] for t, _ in args)),
             *(("parameter", text) for _, text in args), *fields.items()]
    return post(port, "/", urllib.parse.urlencode(pairs).encode(),
                {"Content-Type": "application/x-www-form-urlencoded"})


def call(port, method, body, query="", **headers):
    return post(port, f"/{SAMPLER}/{method}{query}", json.dumps(body).encode(),
                {"Content-Type": "application/json", **headers})


def parsed(text):
    """A JSON value, or the text itself if it is not one."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def java_hash(s):
    """Java's String.hashCode."""
    h, units = 0, s.encode("utf-16-be")
    for i in range(0, len(units), 2):
        h = (31 * h + int.from_bytes(units[i:i + 2], "big")) & 0xffffffff
    return h - (1 << 32) if h >> 31 else h


def brief(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 40 else f"{text[:10]}... ({len(text)})"


def forms(suite, way, port):
    def same(name, got, want):
        status, _, text = got
        suite.check(f"{way}: form: {name}", (status, text) == (200, want), f"{status} {text[:200]!r}, want {want[:200]!r}")

    for s in TEXTS:
        same(f"hash of {brief(s)}", form(port, "hash", (STRING, s)), str(java_hash(s)))
        same(f"echo of {brief(s)}", form(port, "echo", (STRING, s)), s)
    same("int", form(port, "echo", ("int", "-7")), "-7")
    same("boolean", form(port, "echo", ("boolean", "true")), "true")
    same("three arguments", form(port, "second", ("int", "1"), (STRING, "b"), (LIST, "[1]")), "b")
    same("no argument", form(port, "name"), "plain")
    same("null", form(port, "nothing"), "null")
    same("group and version", form(port, "name", group="blue", version="2.0.0"), "blue")
    status, headers, text = form(port, "crash", (STRING, "böse"))
    suite.check(f"{way}: form: exception", status == 500 and "böse" in text
                and headers["x-remora-error"] == "dubbo-exception", f"{status} {text[:300]}")


def values(suite, way, port):
    for kind, value in VALUES:
        status, headers, text = call(port, "echo", {"types": [kind], "args": [value]})
        suite.check(f"{way}: JSON: {kind} {brief(value)}",
                    status == 200 and headers["content-type"] == "application/json" and parsed(text) == value,
                    f"{status} {text[:300]}")
    for value in ("typeless", [1, 2], {"k": "v"}, True):
        status, _, text = call(port, "echo", {"args": [value]})
        suite.check(f"{way}: JSON: types are inferred from {brief(value)}", status == 200 and parsed(text) == value,
                    f"{status} {text[:300]}")
    user = {"name": "Ann", "age": 42, "tags": ["x"], "friend": {"name": "Bob", "age": -1, "tags": None, "friend": None}}
    status, _, text = call(port, "echo", {"types": ["dev.remora.lab.User"], "args": [user]})
    suite.check(f"{way}: JSON: object", status == 200 and contains(parsed(text), user), f"{status} {text[:300]}")
    status, _, text = call(port, "attachment", {"args": ["color"]}, **{"dubbo-attachments": "color=v%C3%A4rde"})
    suite.check(f"{way}: JSON: attachment", (status, text) == (200, '"värde"'), f"{status} {text[:300]}")
    status, _, text = call(port, "name", {"args": []}, "?group=blue&version=2.0.0")
    suite.check(f"{way}: JSON: group and version", (status, text) == (200, '"blue"'), f"{status} {text[:300]}")


def shapes(suite, way, port, generic, serialization):
    """Keys of maps that are no text, nulls inside of values, and what contains itself."""
    as_fastjson = serialization == "fastjson"
    for name, given in generic.items():
        want = json.loads(given.replace("GREEN", "a green") if as_fastjson else given)  # fastjson takes its toString
        if as_fastjson and name == "one object twice":
            want[1] = {"$ref": "$[0]"}
        status, _, text = call(port, "shape", {"args": [name]})
        suite.check(f"{way}: JSON: {name}", status == 200 and canonical(parsed(text), as_fastjson) == canonical(want, as_fastjson),
                    f"{status} {text[:300]}, generic invocation gives {given[:300]}")
    for color in ("RED",) if as_fastjson else ("RED", "GREEN"):
        argument = color if serialization == "fastjson" else {"name": color}
        status, _, text = call(port, "echo", {"types": ["dev.remora.lab.Color"], "args": [argument]})
        suite.check(f"{way}: JSON: enum {color}", status == 200 and parsed(text) in (color, {"name": color}), f"{status} {text[:300]}")


def canonical(value, as_fastjson, path="$", around=()):
    """A value without the classes that providers add, and with absolute references: fastjson shortens some. It leaves nulls
    of objects out, too. A key that is the JSON of an object is that of its canonical form."""
    around = (*around, path)
    if isinstance(value, list):
        return [canonical(v, as_fastjson, f"{path}[{i}]", around) for i, v in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        short = {"@": around[-2:-1], "..": around[-3:-2]}
        return {"$ref": short.get(value["$ref"], (value["$ref"],))[0]}

    def text_of(key):
        inner = parsed(key) if key[:1] in "{[" else key
        return key if inner is key else json.dumps(canonical(inner, as_fastjson), sort_keys=True)

    return {text_of(k): canonical(v, as_fastjson, f"{path}.{k}", around) for k, v in value.items()
            if k not in ("class", "@type") and not (as_fastjson and v is None)}


def contains(got, want):
    """Reports whether an object has these members. A provider may add the class and leave nulls out."""
    return isinstance(got, dict) and all(
        contains(got.get(k), v) if isinstance(v, dict) else got.get(k) == v for k, v in want.items())


def failures(suite, way, port):
    exception, unknown = (500, "dubbo-exception"), (400, "dubbo-bad-request")
    for name, method, kind, argument, want, words in (
            ("declared exception", "refuse", STRING, "too früh", exception, "too früh"),
            ("exception of Java's own", "crash", STRING, "böse", exception, "böse"),
            ("unknown method", "vanish", STRING, "x", unknown, "vanish"),
            ("unknown types", "hash", "int", 1, unknown, "hash")):
        status, headers, text = call(port, method, {"types": [kind], "args": [argument]})
        problem = parsed(text)
        suite.check(f"{way}: JSON: {name}", (status, headers["x-remora-error"]) == want
                    and isinstance(problem, dict) and words in problem["message"], f"{status} {headers['x-remora-error']} {text[:300]}")


def unanswered(suite, way, port):
    """Dubbo 3 does not respond to a serialization that it does not know."""
    status, headers, text = form(port, "hash", (STRING, "abc"))
    suite.check(f"{way}: a provider that never responds", status == 504, f"{status} {headers['x-remora-error']} {text}")
