"""matplotlib's ``RcParams``: its own ones are found again, a copy is filled anew."""

from __future__ import annotations

import importlib
from typing import Any

_ITS_OWN = ("rcParams", "rcParamsDefault", "rcParamsOrig")


def reduce_rc_params(params: Any) -> Any:
    """Carry values as they are: the check of an item refuses a backend that is not chosen yet."""
    module = importlib.import_module("matplotlib")
    for name in _ITS_OWN:
        if getattr(module, name, None) is params:
            return find_rc_params, (name,)
    values = dict(dict.items(params))
    if not isinstance(values.get("backend", ""), str):
        del values["backend"]
    return make_rc_params, (values,)


def find_rc_params(name: str) -> Any:
    """Return those that matplotlib itself uses; side state has set them."""
    return getattr(importlib.import_module("matplotlib"), name)


def make_rc_params(values: dict[str, Any]) -> Any:
    """Return a copy of parameters."""
    made = importlib.import_module("matplotlib").rcParamsDefault.copy()
    dict.update(made, values)
    return made
