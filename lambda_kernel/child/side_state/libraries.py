"""Display and numeric settings of matplotlib, pandas and numpy."""

from __future__ import annotations

import os
from typing import Any

from lambda_kernel.child.side_state.carrier import LibrarySettings

_COLORMAP = "(colormap)"


class MatplotlibParameters(LibrarySettings):
    """``rcParams``."""

    name, module = "matplotlib", "matplotlib"

    def read(self, module: Any) -> dict[str, Any]:
        """Return all of them but the backend, which is not looked for before it is needed."""
        parameters = dict(dict.items(module.rcParams))
        name = parameters.get("image.cmap")
        registered = module.colormaps
        if name in registered and name not in getattr(registered, "_builtin_cmaps", registered):
            # Another library has registered it, which the next cell may not import.
            parameters = {_COLORMAP: registered[name], **parameters}
        backend = parameters.pop("backend", None)
        if isinstance(backend, str) and backend != os.environ.get("MPLBACKEND"):
            parameters["backend"] = backend
        return parameters

    def write(self, module: Any, key: str, value: Any) -> None:
        """Set one."""
        if key == _COLORMAP:
            module.colormaps.register(value, force=True)
        else:
            module.rcParams[key] = value


class PandasOptions(LibrarySettings):
    """``pd.set_option``."""

    name, module = "pandas", "pandas"

    def read(self, module: Any) -> dict[str, Any]:
        """Return all of them by dotted name."""
        options: dict[str, Any] = {}
        _flatten("", module._config.config._global_config, options)
        return options

    def write(self, module: Any, key: str, value: Any) -> None:
        """Set one."""
        module.set_option(key, value)


class NumpySettings(LibrarySettings):
    """``np.set_printoptions`` and ``np.seterr``."""

    name, module = "numpy", "numpy"

    def read(self, module: Any) -> dict[str, Any]:
        """Return both."""
        return {"print": module.get_printoptions(), "errors": module.geterr()}

    def write(self, module: Any, key: str, value: Any) -> None:
        """Set one."""
        if key == "print":
            known = module.get_printoptions()
            module.set_printoptions(
                **{
                    k: v
                    for k, v in value.items()
                    if k in known and k != "override_repr" and known[k] != v
                }
            )
        else:
            module.seterr(**value)


def _flatten(prefix: str, options: dict[str, Any], flat: dict[str, Any]) -> None:
    for key, value in options.items():
        if isinstance(value, dict):
            _flatten(f"{prefix}{key}.", value, flat)
        else:
            flat[prefix + key] = value
