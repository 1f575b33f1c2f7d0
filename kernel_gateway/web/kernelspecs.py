"""Kernelspecs: one for each execution environment, and names that clients ask for anyway."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel
from traitlets import Bool, default
from traitlets import Dict as DictTrait

from kernel_gateway.environments.environment import Environment

DEFAULT_NAME = Environment().kernelspec_name
ALIASES = ("python3", "python")
"""What clients ask for who know of no other name (gateway.md, pitfall 8)."""

LOGOS = ("logo-64x64.png", "logo-svg.svg")


class LambdaKernelSpecManager(KernelSpecManager):
    """The gateway's kernelspecs; those installed on its machine are not among them."""

    environments = DictTrait(help="By kernelspec name.")

    with_aliases = Bool(
        True, help="Whether python3 and python are the default environment's names too."
    ).tag(config=True)

    @default("environments")
    def _default_environments(self) -> Mapping[str, Environment]:
        server: Any = self.parent
        found: Mapping[str, Environment] = server.environments
        return found

    def resolve(self, name: str) -> str:
        """Return the kernelspec that ``name`` stands for.

        Raises:
            NoSuchKernel: there is none.
        """
        if name in self.environments:
            return name
        if self.with_aliases and name in ALIASES:
            return DEFAULT_NAME
        raise NoSuchKernel(name)

    def names(self) -> list[str]:
        """Return all names, aliases last."""
        return [*self.environments, *(ALIASES if self.with_aliases else ())]

    def find_kernel_specs(self) -> dict[str, str]:
        """Return each name with the folder of its logos."""
        return dict.fromkeys(self.names(), _resource_dir())

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return the kernelspec (raises NoSuchKernel)."""
        return KernelSpec(resource_dir=_resource_dir(), **self._spec(kernel_name))

    def get_all_specs(self) -> dict[str, Any]:
        """Return every kernelspec as jupyter_server lists them."""
        return {
            name: {"resource_dir": _resource_dir(), "spec": self._spec(name)}
            for name in self.names()
        }

    async def get_kernel_spec_resource(self, kernel_name: str, path: str) -> bytes | None:
        """Return a logo's bytes, None for anything else."""
        try:
            self.resolve(kernel_name)
        except NoSuchKernel:
            return None
        return logo(path)

    def _spec(self, name: str) -> dict[str, Any]:
        environment: Environment = self.environments[self.resolve(name)]
        shown = environment.display_name
        if name in ALIASES:
            shown = f"{shown.removesuffix(')')}, as {name})"
        return {
            # Nothing here starts a process; clients only require that the list is not empty.
            "argv": ["kernel-gateway", "-f", "{connection_file}"],
            "env": {},
            "display_name": shown,
            "language": "python",
            "interrupt_mode": "message",
            "metadata": {
                "debugger": False,
                "lambda_kernel": {
                    "environment": environment.id,
                    "memory_mb": environment.memory_mb,
                    "timeout_s": environment.timeout_s,
                },
            },
            "kernel_protocol_version": "5.4",
        }


def logo(name: str) -> bytes | None:
    """Return the bytes of one of our logos, None where there is no such file."""
    if name not in LOGOS:
        return None
    return resources.files("kernel_gateway.web").joinpath("kernelspec", name).read_bytes()


def _resource_dir() -> str:
    return str(resources.files("kernel_gateway.web").joinpath("kernelspec"))
