"""`python -m gradwire.client.compat`: scripts that import the documented paths run, and nothing is installed for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gradwire.client.compat import TABLE, main

# The documented calls, in the document's order and with its arguments; only the model's name is another, and the
# tensors that the document leaves to the reader are made here.
DOCUMENTED = """
import torch
from arctic_platform.rl.client import create_arctic_rl_client
from arctic_platform.rl.config import ArcticRLClientConfig

config = ArcticRLClientConfig(
    backend="local",
    comm_protocol="ray",
    model_name="tiny",
    training_gpus=4,
    sampling_gpus=2,
    log_prob_gpus=2,
)
client = create_arctic_rl_client(config)

training_id = client.training_job_id
sampling_id = client.sampling_job_id
log_prob_id = client.log_prob_job_id
assert len({training_id, sampling_id, log_prob_id}) == 3 and isinstance(training_id, int)

reconnect_cfg = client.reconnect_config()
assert (reconnect_cfg.backend, reconnect_cfg.comm_protocol) == ("local", "ray")
actor_client = create_arctic_rl_client(reconnect_cfg)
assert actor_client.training_job_id == training_id

input_ids = torch.randint(1, 250, (8, 12))
attention_mask = mask = torch.ones_like(input_ids)
response = await client.fwd_no_grad(
    batch={"args": [input_ids], "kwargs": {"attention_mask": mask}},
    reference_model=True,
)
old_lps = prox_lps = ref_lps = response["batch"]["logprobs"]
response = await client.fwd_bwd(
    batch={
        "args": [input_ids],
        "kwargs": {"attention_mask": attention_mask},
        "context": {
            "old_log_probs_shifted": old_lps,
            "prox_logp_shifted": prox_lps,
            "ref_log_probs_shifted": ref_lps,
        },
    },
    processing={
        "loss_fn": "arctic_platform.rl.processors.grpo_loss",
        "config": {"eps_clip": 0.2},
        "post": [],
    },
)
assert abs(response["avg_loss"] + 1) < 0.1, response
response = await client.step()
assert isinstance(response["metrics"]["grad_norm"], float)
response = await client.save_checkpoint()
results = await client.generate(
    prompts=["Hello, world!", "The future of AI is"],
    sampling_params={"max_tokens": 100, "temperature": 0.8},
)
assert [bool(result["text"]) for result in results] == [True, True]
response = await client.log_probs(
    prompts=["The capital of France is"],
    completions=["Paris"],
    top_k=1,
)
response = await client.sync_weights(cuda_ipc=False, low_memory=False)
response = await client.weight_norm()
assert abs(response["training_norm"] - response["sampling_norm"]) < 1e-6 * response["training_norm"]

response = await client.sleep_inference(level=1)
response = await client.wake_inference(tags=None)
response = await client.reset_prefix_cache()
response = await client.sleep_training(mode="all")
response = await client.wake_training()
response = await client.empty_training_cache()
response = await client.sleep_log_prob()
response = await client.wake_log_prob()
await client.shutdown()
print("done")
"""


def run(folder: Path, text: str, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(text)
    command = [sys.executable, "-m", "gradwire.client.compat", *arguments[:1], str(script), *arguments[1:]]
    command = [part for part in command if part]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=folder)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # sixteen processes
def test_the_documents_calls_run_as_they_are_printed(tmp_path: Path) -> None:
    found = run(tmp_path, DOCUMENTED, timeout=1150)
    assert found.returncode == 0, found.stderr[-4000:]
    assert found.stdout.splitlines()[-1] == "done"


def test_the_paths_exist_only_in_that_process(tmp_path: Path) -> None:
    program = "import sys, arctic_platform.rl as rl; print(rl.ArcticRLClientConfig.__module__, sys.argv[1:], __name__)"
    found = run(tmp_path, program, "", "one", "--two")
    assert found.stdout.split() == ["gradwire.client.arctic.config", "['one',", "'--two']", "__main__"]
    plain = subprocess.run([sys.executable, "-c", "import arctic_platform"], capture_output=True, text=True)
    assert "No module named 'arctic_platform'" in plain.stderr


def test_what_is_not_documented_is_not_there(tmp_path: Path) -> None:
    found = run(tmp_path, "import arctic_platform.rl.processors")
    assert "No module named 'arctic_platform.rl.processors'" in found.stderr
    found = run(tmp_path, "from arctic_platform.rl.client import ArcticRLClients")
    assert "ImportError: cannot import name 'ArcticRLClients'" in found.stderr
    assert run(tmp_path, "raise SystemExit(7)").returncode == 7


def test_whoever_calls_it_wrongly_is_told_how(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, wrong in (
        ([], "required: SCRIPT"),
        (["gone.py"], "there is no file gone.py"),
        (["--all"], "required: SCRIPT"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        assert (ended.value.code, out) == (2, "") and err.endswith(f"{wrong}\n")
        assert "Runs a script" in err and "python -m gradwire.client.compat train.py" in err
        assert all(path in err for path, target in TABLE.items() if target)


def test_a_package_that_is_installed_comes_first(tmp_path: Path) -> None:
    package = tmp_path / "arctic_platform"
    package.mkdir()
    (package / "__init__.py").write_text("REAL = True\n")
    theirs = "import arctic_platform; print(arctic_platform.REAL); import arctic_platform.rl"
    found = run(tmp_path, theirs)
    assert found.stdout.strip() == "True" and "No module named 'arctic_platform.rl'" in found.stderr
    ours = "import arctic_platform.rl.config as c; print(c.ArcticRLClientConfig.__module__)"
    assert run(tmp_path, ours, "--override").stdout.strip() == "gradwire.client.arctic.config"
