"""The event ``cell_executed`` on the event bus of a Jupyter server, for whatever sinks it has."""

from __future__ import annotations

from dataclasses import asdict
from importlib import resources
from typing import Any

from kernel_gateway.kernels.finished import FinishedCell
from kernel_gateway.kernels.recorder import CellRecorder

CELL_EXECUTED = "https://events.jupyter.org/lambda_kernel/cell_executed/v1"


def register(server: Any) -> None:
    """Make the event known to a server's bus; who listens to all events must find it there."""
    bus = server.event_logger
    if CELL_EXECUTED not in bus.schemas:
        schema = resources.files("kernel_gateway.web").joinpath("event_schemas/cell_executed.yaml")
        bus.register_event_schema(schema.read_text(encoding="utf-8"))


def publish(recorder: CellRecorder, server: Any) -> None:
    """Emit the event on a server's bus for every cell whose end is recorded from now on."""

    def emit(cell: FinishedCell) -> None:
        server.event_logger.emit(schema_id=CELL_EXECUTED, data=asdict(cell))

    recorder.watchers.append(emit)
