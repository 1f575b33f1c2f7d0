"""Makes random programs, and says what a namespace holds so that two can be compared."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = ("a", "b", "c", "d", "e")
FUNCTIONS = ("f", "g", "h")
CLASSES = ("K", "L")

PRELUDE = """\
import numpy as np, functools, collections
def listed(v):
    return v if isinstance(v, list) else []
a, b, c, d, e = [1], {'k': []}, np.arange(8.), [[2], [3]], (4, [5])
def f(v): return [v, a]
def g(v=b): return v
def h(v): return f(v)
class K:
    n = 0
    def __init__(self, v): self.x = v
    def m(self): return [self.x, b]
class L(K):
    held = d
"""

DESCRIBE = '''\
def _describe(namespace):
    """Values with the identities among them: the second meeting of an object is its number."""
    import types
    seen, kept, arrays = {}, [], []
    def where(v):
        # Whether it shares memory with an array that was met before, and how far apart they are.
        start = v.__array_interface__["data"][0]
        shares = [(n, start - s) for n, (w, s) in enumerate(arrays) if np.shares_memory(v, w)]
        arrays.append((v, start))
        return f"@{v.strides}{shares}" if shares else ""
    def walk(v):
        if v is None or isinstance(v, (bool, int, float, str)):
            return repr(v)
        if type(v) is tuple and all(isinstance(x, (bool, int, float, str, type(None))) for x in v):
            # Which of two equal constants it is, no program can rely on.
            return repr(v)
        if isinstance(v, types.ModuleType):
            return v.__name__
        if id(v) in seen:
            return f"#{seen[id(v)]}"
        seen[id(v)] = len(seen)
        kept.append(v)
        kind = type(v).__name__
        if isinstance(v, type):
            attributes = {k: x for k, x in sorted(vars(v).items()) if not k.startswith("__")}
            bases = [walk(b) for b in v.__bases__ if b is not object]
            return f"class {v.__qualname__}{bases}{pairs(attributes)}"
        if isinstance(v, np.ndarray):
            elements = [walk(x) for x in v.ravel().tolist()] if v.dtype.hasobject else v.tolist()
            return f"array {v.dtype}{v.shape}{elements}{where(v)}"
        if isinstance(v, (list, tuple, collections.deque)):
            return f"{kind}[{', '.join(map(walk, v))}]"
        if isinstance(v, set):
            return f"set{sorted(map(repr, v))}"
        if isinstance(v, dict):
            return f"{kind}{pairs(v)}"
        if isinstance(v, types.FunctionType):
            cells = [walk(c.cell_contents) for c in v.__closure__ or ()]
            return f"function {v.__name__}{cells}{walk(v.__defaults__)}{walk(v.__dict__)}"
        if isinstance(v, types.MethodType):
            return f"method {walk(v.__self__)}{walk(v.__func__)}"
        if isinstance(v, functools.partial):
            return f"partial {walk(v.func)}{walk(v.args)}"
        if hasattr(v, "__dict__"):
            return f"{kind} of {walk(type(v))}{pairs(vars(v))}"
        return kind
    def pairs(d):
        return "{" + ", ".join(f"{k!r}: {walk(x)}" for k, x in d.items()) + "}"
    return "\\n".join(f"{n} = {walk(namespace[n])}" for n in "abcdefghKL" if n in namespace)
_text = _describe(globals())
_text
'''


def _name() -> st.SearchStrategy[str]:
    return st.sampled_from(NAMES)


def _small() -> st.SearchStrategy[str]:
    return st.sampled_from(("0", "1", "2.5", "'s'", "None", "True"))


@st.composite
def _value(draw: Any) -> str:
    x, y, v = draw(_name()), draw(_name()), draw(_small())
    f, cls = draw(st.sampled_from(FUNCTIONS)), draw(st.sampled_from(CLASSES))
    forms = (
        v,
        f"[{v}]",
        f"[{x}, {y}]",
        f"[{x}, {v}, {x}]",
        f"({x}, [{v}])",
        f"{{'k': {x}, 'm': {y}}}",
        f"{{'k': [{v}]}}",
        "{1, 2}",
        f"collections.deque([{x}], maxlen=3)",
        "np.arange(6.)",
        "np.arange(40_000.)",
        "np.arange(6).reshape(2, 3)",
        f"np.array([{x}, None], dtype=object) if not isinstance({x}, np.ndarray) else {x}",
        f"{x}[1:]",
        f"{x}[::-1]",
        f"{x}.T",
        f"{x}[0]",
        f"{x}['k']",
        f"{x}.x",
        f"{x}.append",
        f"list({x})",
        f"{x}",
        f"{cls}({x})",
        f"{cls}",
        f"{f}",
        f"{f}({x})",
        f"functools.partial({f}, {x})",
        f"{x}.m",
        f"vars({x})",
        "list(range(1500))",
        "[[i] for i in range(3)]",
        "bytearray(b'abc')",
        f"{x}.keys()",
    )
    return str(draw(st.sampled_from(forms)))


@st.composite
def _function(draw: Any) -> str:
    f, x, y, v = (
        draw(st.sampled_from(FUNCTIONS)),
        draw(_name()),
        draw(_name()),
        draw(_small()),
    )
    g = draw(st.sampled_from(FUNCTIONS))
    forms = (
        f"def {f}(v, seen=[]):\n    seen.append({v})\n    return seen",
        f"def {f}(v):\n    global {x}\n    {x} = [v, {y}]\n    return {x}",
        f"def {f}(v, d={x}):\n    return [v, d, {y}]",
        f"def {f}_(n):\n    box = [n]\n    def {f}(v):\n        nonlocal n\n        n = v\n"
        f"        box.append({v})\n        return box\n    def {g}(v):\n        return n, box\n"
        f"    return {f}, {g}\n{f}, {g} = {f}_({x})",
        f"{f} = lambda v: {x}",
        f"{f}.tag = {x}",
        f"@functools.wraps({g})\ndef {f}(v, inner={g}):\n    return [inner, v]",
    )
    return str(draw(st.sampled_from(forms)))


@st.composite
def _class(draw: Any) -> str:
    cls, x, v = draw(st.sampled_from(CLASSES)), draw(_name()), draw(_small())
    other = next(name for name in CLASSES if name != cls)
    init = (
        "    def __init__(self, v):\n        self.x = v\n"
        "        self.n = type(self).n\n        type(self).n += 1"
    )
    forms = (
        f"class {cls}:\n    n = 0\n    held = {x}\n{init}\n    def m(self):\n        return self.x",
        f"class {cls}({other}):\n    tag = {v}\n    def m(self):\n"
        f"        return [super().m(), {x}]",
        f"class {cls}:\n    __slots__ = ('x', 'y')\n    def __init__(self, v):\n"
        f"        self.x = v\n    def m(self):\n        return __class__",
        f"{cls}.extra = {x}",
        f"{cls}.held = {other}",
        f"class {cls}:\n    all = []\n    def __init__(self, v):\n        self.x = v\n"
        f"        self.all.append(self)",
    )
    return str(draw(st.sampled_from(forms)))


@st.composite
def _statement(draw: Any) -> str:
    x, y, v = draw(_name()), draw(_name()), draw(_small())
    kind = draw(st.integers(0, 13))
    if kind <= 4:
        return f"{x} = {draw(_value())}"
    if kind <= 6:
        return str(draw(_function()))
    if kind == 7:
        return str(draw(_class()))
    forms = (
        f"{x} = {y}",
        f"{x}.append({v})",
        f"{x}.append({y})",
        f"{x}[0] = {v}",
        f"{x}[-1] = {y}",
        f"{x}['k'] = {y}",
        f"{x}.x = {y}",
        f"{x}[0].append({v})",
        f"{x} += [{v}]",
        f"{x} += 1",
        f"{x}[...] = 7",
        f"del {x}",
        f"del {x}[0]",
        f"{x}({y})",
        f"{x}()",
        "1 / 0",
        f"f({x})",
        f"g({x}); h({y})",
        f"{x}, {y} = {y}, {x}",
        f"for {x} in listed({y}): pass",
        f"exec('{x} = ' + '{y}')",
        f"globals()['{x}'] = {y}",
        f"{x}.extend([{y}, {v}])",
        f"{x} = {y} = [{v}]",
        "K, L = L, K",
        "f, g = g, f",
        "del f",
        f"{x}.clear()",
    )
    return str(draw(st.sampled_from(forms)))


@st.composite
def _guarded(draw: Any) -> str:
    statement = draw(_statement())
    if draw(st.integers(0, 4)) == 0:
        return str(statement)
    body = "\n".join(f"    {line}" for line in statement.split("\n"))
    return f"try:\n{body}\nexcept Exception: pass"


def programs() -> st.SearchStrategy[list[list[str]]]:
    """Return programs: cells of statements, any of which may raise."""
    cell = st.lists(_guarded(), min_size=2, max_size=6)
    return st.lists(cell, min_size=3, max_size=7)
