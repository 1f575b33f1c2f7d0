"""What a gateway that is ready tells whoever has started it."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from urllib.parse import quote


def announcement(url: str, token: str | None) -> str:
    """Return where a gateway is, and commands that use it as they stand there.

    Args:
        url: of the gateway, with a slash at its end.
        token: of its one user; None = it has identities, with a token each.
    """
    address, shown_token = url.rstrip("/"), token or "TOKEN"
    shown = f"{url}?token={quote(token)}" if token else url
    values = f"url={json.dumps(address)}, token={json.dumps(shown_token)}"
    call = f'print(execute("6 * 7", {values}).text)'
    code = f"from kernel_gateway.client import execute; {call}"
    script, options = str(Path(sys.argv[0]).absolute()), ["--output", "executed.ipynb"]
    # As --token=TOKEN, for one that begins with a dash.
    where = [f"--gateway-url={address}", f"--token={shown_token}"]
    lab_options = [f"--gateway-url={address}", f"--GatewayClient.auth_token={shown_token}"]
    commands = {
        "JupyterLab": [*_jupyter_lab(), *lab_options],
        "Python": [sys.executable, "-P", "-c", code],
        "Notebook": [script, "run", _quickstart(), *options, *where],
    }
    lines = [f"  {f'{name}:':11} {shlex.join(command)}" for name, command in commands.items()]
    return "\n".join([f"kernel-gateway is ready: {shown}", *lines])


def _jupyter_lab() -> list[str]:
    here = Path(sys.executable).with_name("jupyter-lab")
    return [str(here)] if here.exists() else ["jupyter", "lab"]


def _quickstart() -> str:
    path = Path(__file__).parents[1] / "notebooks" / "quickstart.ipynb"
    return str(path) if path.exists() else "NOTEBOOK.ipynb"
