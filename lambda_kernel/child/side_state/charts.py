"""How plotly and altair show charts."""

from __future__ import annotations

from typing import Any

from lambda_kernel.child.side_state.carrier import LibrarySettings


class PlotlyRenderer(LibrarySettings):
    """``plotly.io.renderers.default``."""

    name, module = "plotly renderer", "plotly.io._renderers"

    def read(self, module: Any) -> dict[str, Any]:
        """Return its name."""
        return {"default": module.renderers.default}

    def write(self, module: Any, key: str, value: Any) -> None:
        """Set it."""
        setattr(module.renderers, key, value)


class AltairChoices(LibrarySettings):
    """``alt.renderers.enable`` and ``alt.data_transformers.enable``."""

    name, module = "altair", "altair"

    def read(self, module: Any) -> dict[str, Any]:
        """Return what is enabled, with its options."""
        registries = ("renderers", "data_transformers")
        found = {name: getattr(module, name) for name in registries}
        return {name: (of.active, dict(of.options)) for name, of in found.items()}

    def write(self, module: Any, key: str, value: Any) -> None:
        """Enable it."""
        name, options = value
        getattr(module, key).enable(name, **options)
