"""Comms and ipywidgets: the model's state, and the comm that the front end knows it by.

Nothing is announced again: a front end that shows the widget follows what the kernel sets.
"""

from __future__ import annotations

import importlib
from typing import Any

CONTROL_TARGET = "jupyter.widget.control"

_is_taken_up = True


def take_up() -> None:
    """Let what is made from now on be the session's: registered, and open."""
    global _is_taken_up
    _is_taken_up = True


def lay_down() -> None:
    """Let what is made from now on be a copy that nobody hears of: pickles are only tried."""
    global _is_taken_up
    _is_taken_up = False


def reduce_comm(comm: Any) -> Any:
    """Carry its identity and who listens."""
    state = {
        name: getattr(comm, name, None)
        for name in ("_msg_callback", "_close_callback", "_closed", "topic")
    }
    return make_comm, (comm.target_name, comm.comm_id), state, None, None, _set_comm_state


def make_comm(target_name: str, comm_id: str) -> Any:
    """Return a comm that the front end has opened already."""
    comm_package = importlib.import_module("comm")
    comm = comm_package.create_comm(target_name=target_name, comm_id=comm_id, primary=False)
    comm.primary = True
    if _is_taken_up:
        # Without a kernel ipywidgets takes it for one that nobody listens to.
        comm.kernel = importlib.import_module("ipykernel.kernelbase").Kernel.instance()
        comm_package.get_comm_manager().register_comm(comm)
        if target_name == CONTROL_TARGET:
            importlib.import_module("ipywidgets").Widget._control_comm = comm
    return comm


def _set_comm_state(comm: Any, state: dict[str, Any]) -> None:
    for name, value in state.items():
        setattr(comm, name, value)
    if comm._closed:
        importlib.import_module("comm").get_comm_manager().comms.pop(comm.comm_id, None)
    # One that is thrown away closes itself at the front end, too.
    comm._closed = comm._closed or not _is_taken_up


def reduce_widget(widget: Any) -> Any:
    """Carry its traits and the functions that observe them (traitlets leaves these out)."""
    event_handler = importlib.import_module("traitlets").EventHandler
    observers = [
        (function, name, kind)
        for name, kinds in widget._trait_notifiers.items()
        for kind, functions in kinds.items()
        for function in functions
        if not isinstance(function, event_handler)
    ]
    state = (widget.__getstate__(), observers)
    return make_widget, (type(widget),), state, None, None, _set_widget_state


def make_widget(cls: Any) -> Any:
    """Return a widget without a state."""
    return cls.__new__(cls)


def _set_widget_state(widget: Any, state: tuple[dict[str, Any], list[Any]]) -> None:
    traits, observers = state
    widget.__setstate__(traits)
    for function, name, kind in observers:
        widget._add_notifiers(function, name, kind)
    if widget.comm is not None and _is_taken_up:
        module = importlib.import_module("ipywidgets.widgets.widget")
        instances = getattr(module, "_instances", None)
        if instances is not None:
            instances[widget.comm.comm_id] = widget
