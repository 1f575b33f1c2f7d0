"""Command line, TOML and Jupyter configuration, as one checked value."""

from __future__ import annotations

from pathlib import Path

import pytest
from traitlets.config import Config

from kernel_gateway.errors import ConfigError
from kernel_gateway.kernels.identity import Identity
from kernel_gateway.settings import KernelGateway, Settings
from kernel_gateway.web.identities import token_digest


@pytest.fixture(autouse=True)
def no_configuration_of_this_machine(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path_factory.mktemp("config")))
    monkeypatch.setenv("JUPYTER_NO_CONFIG", "")
    for name in ("JUPYTER_TOKEN", "JUPYTER_TOKEN_FILE", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)


def load(path: Path | None = None, **given: object) -> Settings:
    command_line = Config({"KernelGateway": given})
    return KernelGateway().load(command_line, None if path is None else str(path))


def test_without_any_configuration_one_user_has_a_random_token() -> None:
    first, second = load(), load()
    assert first.token is not None
    assert first.token != second.token
    assert first.identities.identify(first.token) == Identity(user="local", admin=True)
    assert list(first.environments) == ["lambda-python"]
    assert first.state_dir.name == "lambda-kernel-gateway"


def test_the_token_is_the_given_one_else_that_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("of-a-file\n")
    monkeypatch.setenv("JUPYTER_TOKEN_FILE", str(tmp_path / "token"))
    assert load().token == "of-a-file"
    monkeypatch.setenv("JUPYTER_TOKEN", "of-the-environment")
    assert load().token == "of-the-environment"
    assert load(token="given").token == "given"
    with pytest.raises(ConfigError, match="empty"):
        load(token="")


def test_a_toml_file_has_identities_environments_and_traits(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        f"""
        [[identity]]
        user = "u1"
        token_sha256 = "{token_digest("t")}"

        [[environment]]
        id = "small"
        memory_mb = 512

        [KernelGateway]
        max_containers = 2
        governed_read_prefix = "shared/reference/"

        [ServerApp]
        port = 9999
        allow_origin = "https://x.example"
        """
    )
    settings = load(path)
    assert settings.token is None
    assert settings.identities.identify("t") == Identity(user="u1")
    assert settings.environments["lambda-small"].memory_mb == 512
    assert settings.environments["lambda-small"].mask_connectors
    assert settings.max_containers == 2
    assert settings.stack.governed_read_prefix == "shared/reference/"
    assert settings.config.ServerApp.port == 9999


def test_the_command_line_goes_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "config.py"
    path.write_text("c.KernelGateway.state_dir = '/a'\nc.KernelGateway.max_containers = 3\n")
    settings = load(path, state_dir="/b")
    assert settings.state_dir == Path("/b")
    assert settings.max_containers == 3


def test_a_json_file_works_as_for_any_jupyter_application(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"KernelGateway": {"idle_container_s": 5}}')
    assert load(path).idle_container_s == 5


def test_identities_may_stand_in_a_file_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "identities.toml"
    path.write_text(f'[[identity]]\nuser = "u1"\ntoken_sha256 = "{token_digest("t")}"\n')
    assert load(identities_file=str(path)).identities.identify("t") == Identity(user="u1")
    with pytest.raises(ConfigError, match="--token"):
        load(identities_file=str(path), token="x")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "no [[identity]]"),
        ("[[identity]]\nuser = 'u'\n", "identity[0].token_sha256"),
        ("[[environment]]\nid = 'x'\n", "environment"),
        ("identity = 3\n", "[[identity]]"),
        ("[identity]\nuser = 'u'\n", "[[identity]]"),
        ("not toml", "is not TOML"),
    ],
)
def test_a_bad_identities_file_is_refused(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "identities.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(identities_file=str(path))
    assert str(refused.value).startswith(f"{path}: ")
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[[environment]]\nid = 'x'\nmemory_mb = 64\n", "environment[0].memory_mb"),
        ("[[environment]]\nid = 'x'\ntimeout_s = 901\n", "environment[0].timeout_s"),
        ("[[environment]]\nid = 'x'\n[[environment]]\nid = 'y'\npreload = ['-']\n", "[1].preload"),
        ("[[environment]]\nid = 'x'\ntimeout_s = 'long'\n", "environment[0].timeout_s"),
        ("[[environment]]\nid = 'x'\nmemory = 512\n", "environment[0].memory"),
        ("[[environment]]\nid = '../x'\n", "environment[0].id"),
        ("port = 8888\n", "port is not known"),
        ("[[ServerApp]]\nport = 1\n", "ServerApp is not known"),
        ("[KernelGateway]\nmax_containers = 0\n", "max_containers"),
        ("[KernelGateway]\nmax_containers = 'many'\n", "max_containers"),
        ("[KernelGateway]\ngoverned_read_prefix = 'users/u1/'\n", "governed_read_prefix"),
        ("[KernelGateway]\ngoverned_read_prefix = 'no-slash'\n", "governed_read_prefix"),
        ("\x00", "is not TOML"),
    ],
)
def test_a_bad_value_is_refused_with_its_name(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert named in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.py", "c.KernelGateway.max_containers = 0\n"),
        ("config.py", "c.KernelGateway.environment = [{'id': 'x', 'memory_mb': 1}]\n"),
        ("config.json", '{"KernelGateway": {"max_containers": 0}}'),
    ],
)
def test_a_bad_value_in_any_kind_of_file_is_refused_with_its_name(
    tmp_path: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / name)
    assert str(refused.value).startswith(f"{tmp_path / name}: ")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["missing.toml", "missing.py", "config.yaml"])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        load(tmp_path / name)


def test_a_configuration_that_raises_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config.py"
    path.write_text("1 / 0\n")
    with pytest.raises(ConfigError, match="ZeroDivisionError"):
        load(path)


@pytest.mark.parametrize("url", ["host:8888", "ftp://host", "http://", "http://host?token=t"])
def test_an_address_that_other_gateways_cannot_use_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="--replica-url"):
        load(replica_url=url)


def test_a_deployment_that_runs_already_is_read_with_its_names(tmp_path: Path) -> None:
    path = tmp_path / "deployment.json"
    path.write_text(
        '{"stack": {"prefix": "other-"}, "region": "eu-west-1", "handler_digest": "d",'
        ' "s3_endpoint": "http://127.0.0.1:9"}'
    )

    found = load(deployment_file=str(path), replica_url="http://b:8888/base")

    assert found.deployment is not None
    assert found.deployment.region == "eu-west-1"
    assert found.stack.records == "other-records"
    assert found.replica_url == "http://b:8888/base"
    assert load().deployment is None


@pytest.mark.parametrize("text", [None, "no JSON", "[]", '{"region": "eu-west-1"}'])
def test_a_file_that_is_no_deployment_is_refused(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "deployment.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=r"--deployment .*deployment\.json"):
        load(deployment_file=str(path))
