"""ArcticRLClientConfig: fields, defaults, and what is refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gradwire.client.arctic import ArcticRLClientConfig, create_arctic_rl_client

PEER_DEFAULTS: dict[str, Any] = {
    "backend": "local",
    "checkpoint_path": None,
    "host": None,
    "port": None,
    "ds_config": {},
    "training_config": None,
    "vllm_config": None,
    "log_prob_ds_config": None,
    "ds_worker_config": None,
    "arctic_inference_config": None,
    "full_determinism": False,
    "seed": 42,
    "training_gpus": 0,
    "sampling_gpus": 0,
    "log_prob_gpus": 0,
    "log_prob_engine": "vllm",
    "colocate": False,
    "cuda_ipc": False,
    "low_memory": False,
    "server_logs": True,
    "ray_auto_attach": True,
    "startup_timeout": 300.0,
    "health_check_interval": 2.0,
    "job_ready_timeout": 600.0,
    "training_job_id": None,
    "sampling_job_id": None,
    "log_prob_job_id": None,
}


def config(**fields: Any) -> ArcticRLClientConfig:
    return ArcticRLClientConfig(**{"model_name": "tiny", "sampling_gpus": 1, **fields})


def test_every_documented_field_has_its_default() -> None:
    made = ArcticRLClientConfig(model_name="tiny", training_job_id=1)  # needs nothing else
    assert {name: getattr(made, name) for name in PEER_DEFAULTS} == PEER_DEFAULTS | {"training_job_id": 1}
    assert made.comm_protocol == "grpc"  # the one default that is ours
    assert config(seed=None).seed == 42


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"trainig_gpus": 1}, "did you mean 'training_gpus'"),
        ({"use_arctic_inference": True}, "'use_arctic_inference' is not known"),
        ({"backend": "lokal"}, "'local', 'dss-platform' or 'remote'"),
        ({"comm_protocol": "https"}, "'grpc', 'http' or 'ray'"),
        ({"log_prob_engine": "hf"}, "'vllm' or 'deepspeed'"),
        ({"sampling_gpus": 0}, "at least one of training_gpus, sampling_gpus and log_prob_gpus is above 0"),
        ({"sampling_gpus": 0, "backend": "remote"}, "at least one of training_gpus"),
        ({"training_gpus": -1}, "training_gpus"),
        ({"log_prob_gpus": -2}, "log_prob_gpus"),
        ({"sampling_gpus": 1.5}, "sampling_gpus"),
        ({"sampling_gpus": True}, "sampling_gpus"),
        ({"seed": -1}, "seed"),
        ({"port": 70000}, "port"),
        ({"startup_timeout": 0}, "startup_timeout"),
        ({"training_job_id": 0}, "training_job_id"),
        ({"model_name": ""}, "model_name"),
        ({"host": "10.0.0.7"}, 'connect with backend="remote"'),
        ({"token": "s3cret"}, "are of a running server"),
        ({"comm_protocol": "ray", "port": 50051}, "leave host and port out"),
        ({"ray_server": "x"}, 'go only with comm_protocol="ray"'),
    ],
)
def test_bad_fields_are_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        config(**fields)


def test_model_name_is_required() -> None:
    with pytest.raises(ValidationError, match="model_name"):
        ArcticRLClientConfig(sampling_gpus=1)  # type: ignore[call-arg]


def test_ids_need_no_gpus() -> None:
    reconnecting = ArcticRLClientConfig(model_name="tiny", training_job_id=3)
    assert reconnecting.is_reconnect and not reconnecting.starts_server


def test_the_secret_is_never_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GRADWIRE_TOKEN", raising=False)
    made = config(backend="remote", host="example.org", token="s3cret", tls=True)
    assert "s3cret" not in repr(made) + str(made.model_dump()) + made.model_dump_json()
    assert made.secret() == "s3cret"
    # What JSON leaves out is not a masked token: the reader's environment stands in.
    again = ArcticRLClientConfig.model_validate_json(made.model_dump_json())
    assert again.secret() is None
    monkeypatch.setenv("GRADWIRE_TOKEN", "theirs")
    assert again.secret() == "theirs"
    assert json.loads(made.model_dump_json(context={"secrets": True}))["token"] == "s3cret"
    assert copy.deepcopy(made) == made  # as a pickle would make it
    with pytest.raises(ValidationError) as failed:
        config(backend="remote", token="s3cret", port="x")
    assert "s3cret" not in str(failed.value)
    authority = tmp_path / "ca.pem"
    authority.write_text("-----BEGIN CERTIFICATE-----\n")
    assert config(backend="remote", tls_ca=str(authority)).tls_ca_pem() == authority.read_text()


def test_what_was_assigned_later_is_checked_when_a_client_is_made() -> None:
    made = config()
    made.comm_protocol = "carrier pigeon"  # type: ignore[assignment]
    with pytest.raises(ValueError, match="'carrier pigeon' is not known"):
        create_arctic_rl_client(made)
    made.comm_protocol = "grpc"
    made.sampling_gpus = -1
    with pytest.raises(ValueError, match="sampling_gpus"):
        create_arctic_rl_client(made)
