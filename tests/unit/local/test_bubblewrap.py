"""The command lines of bubblewrap: what a container and SeaweedFS may see."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_gateway.local.bubblewrap import ContainerSpec, container_argv
from kernel_gateway.local.interpreter import Interpreter, pair_sites
from kernel_gateway.local.storage_config import sandbox_argv

BINDS = {"--ro-bind", "--bind", "--ro-bind-try", "--bind-try", "--dev-bind"}


def spec(*, as_root: bool) -> ContainerSpec:
    return ContainerSpec(
        bwrap="/bwrap",
        as_root=as_root,
        interpreter=Interpreter(
            executable="/home/u/py/bin/python3",
            prefix="/home/u/py",
            sites=(("/home/u/venv/lib/site-packages", "/home/u/py/lib/site-packages"),),
        ),
        bootstrap="/code/bootstrap.py",
        shim="/code/container_init.py",
        links=(("/lib", "usr/lib"),),
        folders=("/lib64",),
        ephemeral_bytes=1024,
        shared_memory_bytes=2048,
    )


def argv_of(*, as_root: bool) -> list[str]:
    return container_argv(
        spec(as_root=as_root), control_fd=7, info_fd=8, file_fds={"/etc/passwd": 9}
    )


def binds(argv: list[str]) -> dict[str, tuple[str, str]]:
    """Return destination to (option, source)."""
    return {argv[i + 2]: (argv[i], argv[i + 1]) for i in range(len(argv)) if argv[i] in BINDS}


@pytest.mark.parametrize("as_root", [True, False])
def test_only_the_allowed_folders_of_the_host_are_shown(as_root: bool) -> None:
    shown = binds(argv_of(as_root=as_root))

    assert {source for _, source in shown.values() if not source.startswith("/etc/")} == {
        "/usr",
        "/lib64",
        "/home/u/py",
        "/home/u/venv/lib/site-packages",
        "/code/bootstrap.py",
        "/code/container_init.py",
    }
    assert not {"/", "/etc", "/home", "/root", "/run", "/var", "/tmp"} & set(shown)
    assert all(option.startswith("--ro-") for option, _ in shown.values())


@pytest.mark.parametrize("as_root", [True, False])
def test_no_capability_no_network_and_no_variable_is_left(as_root: bool) -> None:
    argv = argv_of(as_root=as_root)

    assert argv[argv.index("--cap-drop") + 1] == "ALL"
    assert {"--as-pid-1", "--die-with-parent", "--new-session", "--clearenv"} <= set(argv)
    assert "--share-net" not in argv
    assert "--setenv" not in argv


def test_as_root_no_user_namespace_is_made_and_only_the_shim_has_rights() -> None:
    argv = argv_of(as_root=True)

    added = [argv[i + 1] for i in range(len(argv)) if argv[i] == "--cap-add"]
    assert added == ["CAP_SETUID", "CAP_SETGID", "CAP_SYS_ADMIN"]
    assert not {"--uid", "--unshare-user", "--unshare-all"} & set(argv)
    assert {"--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"} <= set(argv)


def test_an_ordinary_user_gets_every_namespace_and_lambdas_ids() -> None:
    argv = argv_of(as_root=False)

    assert "--unshare-all" in argv
    assert argv[argv.index("--uid") + 1] == "993"
    assert argv[argv.index("--gid") + 1] == "990"
    assert "--cap-add" not in argv


def test_temporary_folders_have_their_sizes() -> None:
    argv = argv_of(as_root=False)

    sizes = {argv[i + 3]: argv[i + 1] for i in range(len(argv)) if argv[i] == "--size"}
    assert sizes["/tmp"] == "1024"
    assert sizes["/dev/shm"] == "2048"
    assert "/opt" in sizes


def test_the_last_words_are_the_shim_and_its_descriptor() -> None:
    argv = argv_of(as_root=True)

    assert argv[argv.index("--") + 1 :] == [
        "/home/u/py/bin/python3",
        "-I",
        "-S",
        "/var/runtime/container_init.py",
        "7",
    ]


def test_a_filter_of_system_calls_is_installed_where_there_is_one() -> None:
    argv = container_argv(spec(as_root=False), control_fd=7, info_fd=8, file_fds={}, seccomp_fd=10)

    assert argv[argv.index("--seccomp") + 1] == "10"
    assert "--seccomp" not in argv_of(as_root=False)


def test_an_interpreter_under_usr_is_not_bound_twice() -> None:
    argv = container_argv(
        ContainerSpec(
            bwrap="/bwrap",
            as_root=False,
            interpreter=Interpreter(executable="/usr/bin/python3", prefix="/usr"),
            bootstrap="/b",
            shim="/s",
            links=(),
            folders=(),
            ephemeral_bytes=1,
            shared_memory_bytes=1,
        ),
        control_fd=7,
        info_fd=8,
        file_fds={},
    )

    assert argv.count("/usr") == 2


@pytest.mark.parametrize("as_root", [True, False])
def test_seaweedfs_has_its_own_network_and_sees_only_its_folders(as_root: bool) -> None:
    argv = sandbox_argv(
        bwrap="/bwrap",
        weed="/w/weed",
        data=Path("/s/data"),
        sockets=Path("/s/run"),
        as_root=as_root,
        info_fd=8,
        file_fds={"/etc/s3.json": 9},
    )

    assert "--unshare-net" in argv
    assert binds(argv) == {
        "/weed": ("--ro-bind", "/w/weed"),
        "/data": ("--bind", "/s/data"),
        "/sockets": ("--bind", "/s/run"),
    }
    assert "-master.telemetry=false" in argv
    assert not [word for word in argv if "secret" in word.lower() or "jwt" in word.lower()]


@pytest.mark.parametrize(
    ("packages", "own", "pairs"),
    [
        (["/v/lib/sp", "/v/lib/sp"], ["/b/lib/sp"], (("/v/lib/sp", "/b/lib/sp"),)),
        (
            ["/v/lib/sp", "/v/lib64/sp"],
            ["/b/lib64/sp", "/b/lib/sp"],
            (("/v/lib/sp", "/b/lib/sp"), ("/v/lib64/sp", "/b/lib64/sp")),
        ),
        (["/v/lib/sp"], ["/b/local/dp", "/b/dp"], (("/v/lib/sp", "/b/local/dp"),)),
        (["/v/lib/sp"], [], ()),
    ],
)
def test_a_venvs_packages_are_bound_over_the_bases_own(
    packages: list[str], own: list[str], pairs: tuple[tuple[str, str], ...]
) -> None:
    assert pair_sites(packages, own) == pairs
