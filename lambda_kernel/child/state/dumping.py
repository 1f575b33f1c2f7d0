"""One component as a pickle: made, tried, and told of where it cannot be."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lambda_kernel.child.state.components import Components
from lambda_kernel.child.state.definitions import Definitions
from lambda_kernel.child.state.pickling import SessionPickler, SessionUnpickler

MAX_TRIAL_BYTES = 64 * 1024 * 1024
_TRUSTED_MODULES = (
    "builtins",
    "collections",
    "datetime",
    "decimal",
    "fractions",
    "numpy",
    "pandas",
    "pathlib",
    "types",
    "functools",
    "uuid",
    "re",
    "random",
    "string",
    "array",
    "_io",
    "pyarrow",
)
_CUSTOMISED = (
    "__reduce__",
    "__reduce_ex__",
    "__setstate__",
    "__getstate__",
    "__getnewargs__",
    "__getnewargs_ex__",
    "__new__",
    "__hash__",
    "__setattr__",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pickled:
    """One component, pickled.

    Attributes:
        body: the pickle.
        buffers: its large buffers, in order; they are the values' own memory.
        uses: identities of the definitions of other components in it.
    """

    body: bytes
    buffers: list[memoryview]
    uses: list[str]


class Dumper:
    """Pickles components of one session.

    Args:
        definitions: of the session.
        namespace: of the session.
        by_reference: see SessionPickler.
        walk: of all values.
    """

    def __init__(
        self,
        definitions: Definitions,
        namespace: dict[str, Any],
        by_reference: Mapping[int, Callable[[], Any]],
        walk: Components,
    ) -> None:
        self._definitions = definitions
        self._namespace = namespace
        self._by_reference = by_reference
        self._walk = walk
        self._shared = frozenset(owner for owner, users in walk.base_users.items() if users > 1)

    def dump(self, own: Sequence[str], values: Sequence[Any]) -> Pickled:
        """Return the pickle of one component.

        Args:
            own: identities of the definitions that it holds, base classes first.
            values: of its names.

        Raises:
            BaseException: whatever the values raise: it cannot be stored.
        """
        file = io.BytesIO()
        buffers: list[memoryview] = []
        pickler = SessionPickler(
            file,
            self._definitions,
            own,
            self._by_reference,
            self._shared,
            self._walk.shared_dicts,
            self._walk.lone_blocks,
            buffers,
        )
        held = [self._definitions.get(uid) for uid in own]
        pickler.dump((held, list(values)))
        pickled = Pickled(body=file.getvalue(), buffers=buffers, uses=sorted(pickler.uses))
        if (
            not own
            and len(pickled.body) <= MAX_TRIAL_BYTES
            and any(map(self._is_unknown, pickler.classes))
        ):
            self._try_to_load(pickled)
        return pickled

    def in_base_first_order(self, uids: Sequence[str]) -> list[str]:
        """Return definitions so that each class comes after those it derives from."""

        def depth(uid: str) -> int:
            value = self._definitions.get(uid)
            return len(value.__mro__) if isinstance(value, type) else 0

        return sorted(uids, key=depth)

    def _is_unknown(self, cls: type) -> bool:
        if self._definitions.is_own_class(cls):
            return any(name in vars(base) for base in cls.__mro__[:-1] for name in _CUSTOMISED) or (
                len(cls.__mro__) > 2 and not all(map(self._is_plain, cls.__mro__[1:-1]))
            )
        return str(cls.__module__).partition(".")[0] not in _TRUSTED_MODULES

    def _is_plain(self, cls: type) -> bool:
        return self._definitions.is_own_class(cls) or cls in (dict, list, set, tuple, Exception)

    def _try_to_load(self, pickled: Pickled) -> None:
        # What would fail in the next cell is told now.
        SessionUnpickler(
            io.BytesIO(pickled.body),
            self._namespace,
            Definitions(self._namespace),
            self._definitions.get,
            pickled.buffers,
        ).load()
