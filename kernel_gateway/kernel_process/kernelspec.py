"""``kernel-gateway install``: a kernelspec that starts a kernel process, for every Jupyter tool.

It names a kernel provisioner only where that is asked for: jupyter_client hides a kernelspec whose
provisioner is not installed beside it, and VS Code starts ``argv`` itself. With ``argv`` alone
every environment can use it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from jupyter_client.kernelspec import KernelSpecManager

from kernel_gateway.errors import ConfigError
from kernel_gateway.kernels.options import WORKSPACE, KernelOptions
from kernel_gateway.run_file import default_state_dir
from kernel_gateway.web.kernelspecs import LOGOS, logo

PROVISIONER = "lambda-kernel"
"""As the entry point names it."""

NAME = re.compile(r"[a-z0-9._-]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What is installed, and where.

    Attributes:
        name: of the kernelspec, as ``--kernel`` of a Jupyter tool names it.
        display_name: as menus show it.
        kernel_name: the gateway's own kernelspec: the execution environment.
        state_dir: of the gateway that the kernels share.
        config: of that gateway where a kernel has to start it, None for the usual places.
        workspace: which workspace the cells see, None for the default one.
        prefix: below which it is installed, None for the user's own folder.
        provisioner: whether it names ours, which needs no process.
    """

    name: str
    display_name: str
    kernel_name: str
    state_dir: Path
    config: Path | None
    workspace: str | None
    prefix: str | None
    provisioner: bool

    def __post_init__(self) -> None:
        KernelOptions.from_env({WORKSPACE: self.workspace})
        if not NAME.fullmatch(self.name):
            raise ConfigError(f"--name {self.name!r}: only letters, digits and ._- are allowed")
        if self.config is not None and not self.config.is_file():
            raise ConfigError(f"--config {self.config}: there is no such file")

    @classmethod
    def of_options(cls, options: argparse.Namespace) -> Installation:
        """Return what the command line asks for (raises ConfigError)."""
        state_dir, config = options.state_dir or default_state_dir(), options.config
        return cls(
            name=options.name or options.kernel_name,
            display_name=options.display_name or f"Python (Lambda, {options.kernel_name})",
            kernel_name=options.kernel_name,
            state_dir=Path(state_dir).expanduser().absolute(),
            config=None if config is None else Path(config).absolute(),
            workspace=options.workspace,
            prefix=sys.prefix if options.sys_prefix else options.prefix,
            provisioner=options.provisioner,
        )

    def spec(self) -> dict[str, object]:
        """Return what is written into ``kernel.json``."""
        # Not the current folder first: that is the notebook's, and a `random.py` may be there.
        argv = [sys.executable, "-P", "-m", "kernel_gateway.kernel_process"]
        argv += ["-f", "{connection_file}", "--state-dir", str(self.state_dir)]
        argv += ["--kernel-name", self.kernel_name]
        if self.config is not None:
            argv += ["--config", str(self.config)]
        return {
            "argv": argv,
            "env": {} if self.workspace is None else {WORKSPACE: self.workspace},
            "display_name": self.display_name,
            "language": "python",
            "interrupt_mode": "message",
            "metadata": {
                "debugger": False,
                "supported_encryption": "curve",
                **({"kernel_provisioner": self._provisioner()} if self.provisioner else {}),
            },
        }

    def _provisioner(self) -> dict[str, object]:
        config = {"state_dir": str(self.state_dir), "spec_name": self.kernel_name}
        if self.config is not None:
            config["config_file"] = str(self.config)
        if self.workspace is not None:
            config["workspace"] = self.workspace
        return {"provisioner_name": PROVISIONER, "config": config}

    def install(self) -> Path:
        """Write it, over one of that name, and return its folder.

        Raises:
            ConfigError: the folder cannot be written.
        """
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "kernel.json").write_text(json.dumps(self.spec(), indent=1) + "\n")
            for name in LOGOS:
                (Path(folder) / name).write_bytes(logo(name) or b"")
            try:
                where = KernelSpecManager().install_kernel_spec(
                    folder, self.name, user=self.prefix is None, prefix=self.prefix
                )
            except OSError as problem:
                raise ConfigError(f"cannot install below {self.prefix}: {problem}") from problem
        return Path(where)
