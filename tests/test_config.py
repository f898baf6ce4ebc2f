"""Settings: file, then environment, then flags; a misspelt key is an error wherever it stands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from gradwire.server.addresses import is_loopback, split_address
from gradwire.server.bad_settings import SettingsError, Sources
from gradwire.server.cli import main
from gradwire.server.config import SamplerSettings, Settings, load_settings
from gradwire.server.configured import BadSamplerSettings, sampler_settings
from gradwire.server.errors import InvalidArgument


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings from outside."""
    import os

    for name in list(os.environ):
        if name.startswith("GRADWIRE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gradwire.toml"
    path.write_text(
        'grpc = "127.0.0.1:1"\nmodel = "from-file"\nlog_level = "error"\n'
        "[limits]\nmax_jobs = 3\nmax_calls_per_service = 5\n[sampler]\nmax_model_len = 7\n"
    )
    return path


def refused(config: Path | None = None, **flags: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(config, **flags)
    return str(caught.value)


def test_without_anything_the_defaults_hold() -> None:
    settings = load_settings(None)
    assert (settings.grpc, settings.http, settings.model) == ("127.0.0.1:50051", None, "")
    assert settings.limits.max_message_bytes == 32 << 20


def test_the_environment_stands_above_the_file_and_flags_above_both(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADWIRE_MODEL", "from-environment")
    monkeypatch.setenv("GRADWIRE_GRPC", "127.0.0.1:2")
    settings = load_settings(file, grpc="127.0.0.1:3", model=None)
    assert (settings.log_level, settings.model, settings.grpc) == ("error", "from-environment", "127.0.0.1:3")


def test_nested_settings_of_all_sources_are_merged(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADWIRE_LIMITS__MAX_JOBS", "9")
    monkeypatch.setenv("GRADWIRE_SAMPLER__ENFORCE_EAGER", "true")
    settings = load_settings(file)
    assert (settings.limits.max_jobs, settings.limits.max_calls_per_service) == (9, 5)
    assert (settings.sampler.max_model_len, settings.sampler.enforce_eager) == (7, True)


def test_each_setting_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values = {
        "GRADWIRE_HTTP": "127.0.0.1:0", "GRADWIRE_DATA_DIR": str(tmp_path), "GRADWIRE_REFLECTION": "false",
        "GRADWIRE_SHARED_MEMORY": "0", "GRADWIRE_LIMITS__DRAIN_SECONDS": "1.5",
        "GRADWIRE_TLS__CERTIFICATE": "c.pem", "GRADWIRE_TLS__KEY": "k.pem",
        "GRADWIRE_TOKENS": f'[{{"name": "t", "sha256": "{"0" * 64}"}}]',
    }  # fmt: skip
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    settings = load_settings(None)
    assert (settings.http, settings.data_dir, settings.reflection) == ("127.0.0.1:0", tmp_path, False)
    assert settings.limits.drain_seconds == 1.5
    assert settings.tls is not None and settings.tls.key == Path("k.pem")
    assert settings.tokens[0].scopes == {"INFERENCE", "TRAINING"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gprc = 'x'\n", "gprc: is no setting; did you mean grpc?"),
        ("[limits]\nmax_job = 1\n", "limits.max_job: is no setting; did you mean max_jobs?"),
        ("[sampler]\nzzz = 1\n", "sampler.zzz: is no setting; there are data_parallel_size, "),
        ("[[tokens]]\nname = 't'\nsha265 = 'x'\n", "tokens.0.sha265: is no setting; did you mean sha256?"),
        ("[tls]\ncert = 'x'\n", "tls.cert: is no setting"),
        ("[limits]\nmax_jobs = 0\n", "gradwire.toml: limits.max_jobs: is 0; it should be greater than or equal to 1"),
        ("log_level = 'loud'\n", "log_level: is 'loud'; it should be 'debug', 'info', 'warning' or 'error'"),
        ("[sampler]\ndtype = 'fp32'\n", "dtype: is 'fp32'; it should be 'auto', 'float32', 'bfloat16' or 'float16'"),
        ("[deployments.a]\nlm = true\n", "deployments.a.lm: is no setting; did you mean llm?"),
        ("[deployments.a.params]\ntemprature = 1\n", "temprature: is no setting; did you mean temperature?"),
        ("[deployments.a]\nllm = true\nbundle = 'b'\n", "deployments.a: give either bundle = PATH or llm = true"),
        ("[deployments.a]\nbundle = 'b'\nsystem_prompt = 's'\n", "are for llm = true, not for a bundle"),
        ("[deployments.a]\nllm = true\ndeterministic = true\n", "takes params.temperature = 0"),
        ("[deployments.'a b']\nllm = true\n", "deployments.a b"),
        ("grpc = \n", "gradwire.toml"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "gradwire.toml"
    path.write_text(text)
    assert says in refused(path)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("GRADWIRE_GPRC", "GRADWIRE_GPRC is no setting; did you mean GRADWIRE_GRPC?"),
        ("GRADWIRE_XYZ", "GRADWIRE_XYZ is no setting; there are GRADWIRE_BUNDLE_ROOT, GRADWIRE_DATABASE"),
        ("GRADWIRE_LIMIT__MAX_JOBS", "did you mean GRADWIRE_LIMITS"),
        ("GRADWIRE_LIMITS__MAX_JOB", "limits.max_job: is no setting; did you mean max_jobs?"),
        (
            "GRADWIRE_SAMPLER__DTYPE",
            "variable GRADWIRE_SAMPLER__DTYPE: sampler.dtype: is '1'; it should be",
        ),
    ],
)
def test_mistakes_in_the_environment_are_named(monkeypatch: pytest.MonkeyPatch, name: str, says: str) -> None:
    monkeypatch.setenv(name, "1")
    assert says in refused()


def test_variables_of_other_parts_are_none_of_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ADDRESS", "TOKEN", "CACHE", "EXTRAS", "SPILL_DIR", "FRONT_PID"):
        monkeypatch.setenv(f"GRADWIRE_{name}", "x")
    load_settings(None)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    assert "there is no settings file" in refused(tmp_path / "none.toml")


@pytest.mark.parametrize(
    "address", ["", "localhost", ":1", "localhost:", "localhost:x", "h:65536", "h:-1", "h:1:1", "::1:1", "h:\u0663"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    assert "write HOST:PORT" in refused(grpc=address)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [("localhost:1", "localhost", 1), ("[::1]:0", "::1", 0), ("1.2.3.4:65535", "1.2.3.4", 65535)],
)
def test_addresses_are_taken_apart(address: str, host: str, port: int) -> None:
    assert split_address(address) == (host, port)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "::1"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "127.0.0.1.example.org", ""])
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("token", "says"),
    [
        ({"sha256": "ABC"}, "tokens.0.sha256"),
        ({"sha256": "A" * 64}, "tokens.0.sha256"),
        ({"scopes": ["ROOT"]}, "unknown scopes"),
        ({"tenant": ""}, "tokens.0.tenant"),
    ],
)
def test_tokens_are_checked(token: dict[str, Any], says: str) -> None:
    assert says in refused(tokens=[{"name": "t", "sha256": "0" * 64, **token}])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tokens": [{"name": "t", "sha256": "0" * 64}]}, "exclude each other"),
        ({"grpc": "0.0.0.0:1"}, "insecure_no_auth is for this machine alone, and grpc"),
        ({"http": "10.0.0.1:1"}, "insecure_no_auth is for this machine alone, and http"),
    ],
)
def test_no_auth_is_for_loopback_alone(settings: dict[str, Any], says: str) -> None:
    assert load_settings(None, insecure_no_auth=True).insecure_no_auth
    assert says in refused(insecure_no_auth=True, **settings)


def test_the_databases_address_is_checked_and_never_shown() -> None:
    for bad in ("mysql://u:geheim@h/d", "geheim"):
        text = refused(database=bad)
        assert text.startswith("database: ") and "geheim" not in text
    settings = load_settings(None, database="postgresql://u:geheim@h/d")
    assert "geheim" not in repr(settings)


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_settings(None).grpc = "x:1"


def test_serve_says_what_is_wrong_and_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--grpc", "0.0.0.0:1"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "can be reached from other hosts" in err
    assert "Traceback" not in err and "pydantic" not in err


def test_an_unknown_flag_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--grcp", "127.0.0.1:0"])
    assert "--grcp" in capsys.readouterr().err


def test_deployments_of_flags_stand_beside_those_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import argparse

    from gradwire.server.cli.serve import add_arguments

    path = tmp_path / "gradwire.toml"
    path.write_text("[deployments.a]\nllm = true\n[deployments.b]\nbundle = 'x'\n")
    monkeypatch.chdir(tmp_path)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(["--deploy", "c=llm", "--deploy", "d=sub/cart"])
    found = load_settings(path, deployments=dict(args.deployments), data_dir=tmp_path)
    assert {name: (one.llm, one.bundle) for name, one in found.deployments.items()} == {
        "a": (True, ""), "b": (False, "x"), "c": (True, ""), "d": (False, str(tmp_path / "sub" / "cart")),
    }  # fmt: skip
    assert found.bundles == tmp_path / "bundles"
    with pytest.raises(SystemExit):
        parser.parse_args(["--deploy", "llm"])


def test_every_flag_is_a_setting() -> None:
    import argparse

    from gradwire.server.cli.serve import add_arguments

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    flags = {action.dest for action in parser._actions} - {"help", "config", "stop_on_eof"}
    assert flags <= set(Settings.model_fields)


def test_what_the_model_cannot_do_is_told_by_the_setting(file: Path) -> None:
    with pytest.raises(BadSamplerSettings, match=r"^sampler\.max_model_len: is 9") as caught, sampler_settings():
        raise InvalidArgument.at("sampling.max_model_len", "is 9")
    assert Sources(file).of(caught.value.violations[0].field.split(".")) == f"{file}: "


def test_the_docs_have_every_key_of_the_sampler_with_its_default() -> None:
    page = (Path(__file__).parents[1] / "docs" / "operating.md").read_text()
    table = page.partition("| `sampler.` |")[2].partition("\n\n")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.MULTILINE))
    assert shown.keys() == SamplerSettings.model_fields.keys()
    for name, field in SamplerSettings.model_fields.items():
        if field.default:  # 0 and None: the engine decides, which is put into words
            assert shown[name] == f"`{json.dumps(field.default)}`", name
