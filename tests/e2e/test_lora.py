"""LoRA through gRPC: adapters trained, synced beside each other, merged, saved, loaded; and a policy that learns."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from transformers import AutoModelForCausalLM

from gradwire.client import Client, FailedPreconditionError, InvalidArgumentError, Job, NotFoundError
from gradwire.server.models import resolve_model
from tests.e2e.conftest import TrainerFactory
from tests.serving import ServerProcess

pytestmark = pytest.mark.slow

LORA = {"rank": 4, "alpha": 8}
ADAMW = {"optimizer": {"name": "adamw", "learning_rate": 1e-2}}
PROMPT = "The prompt of this test is longer than a block of the cache of prefixes."
ROWS = [np.frombuffer(text, np.uint8).astype(np.int32) for text in (b"abcabcabcabc", b"To be, or not to be", b"zzzz")]


@pytest.fixture(scope="module")
def sampler(client: Client) -> Iterator[Job]:
    """A second sampler, with two slots for adapters of rank up to 4."""
    settings = {"max_loras": 2, "max_lora_rank": 4, "dtype": "float32", "kv_cache_bytes": 64 << 20}
    job = client.jobs.create(sampling=settings).sampling
    yield job
    client.jobs.destroy(job)


@pytest.fixture
def slots(client: Client, sampler: Job) -> Iterator[Job]:
    """The sampler, without adapters afterwards."""
    yield sampler
    for adapter in client.jobs.get(sampler).adapters:
        client.weights.unload_adapter(adapter.name, sampling_job=sampler)


def train(client: Client, job: Job, *, steps: int = 3, rows: Any = None) -> None:
    for _ in range(steps):
        client.training.fwd_bwd(job, {"input_ids": ROWS if rows is None else rows}, loss="cross_entropy")
        client.training.step(job)


def sums(client: Client, job: Job | None = None, **which: Any) -> dict[str, bytes]:
    return {name: c.sha256 for name, c in client.weights.get_checksums(job, **which).checksums.items()}


def greedy(client: Client, job: Job | None, adapter: str = "", version: int | None = None) -> list[int]:
    result = client.sampling.generate(PROMPT, job=job, adapter=adapter, temperature=0, max_tokens=16, ignore_eos=True)
    (completion,) = result.results[0].completions
    if version is not None:
        assert [span.version for span in completion.weight_spans] == [version]
    return [int(token) for token in completion.token_ids]


def by_openai(server: ServerProcess, job: Job, model: str) -> tuple[list[int], int]:
    """The same by OpenAI's door, and the version that sampled."""
    body = {
        "model": model, "prompt": PROMPT, "temperature": 0, "max_tokens": 16, "ignore_eos": True,
        "return_token_ids": True,
    }  # fmt: skip
    url = f"http://{server.doors['http']}/jobs/{job.job_id}/v1/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        answer = json.load(response)
    return answer["choices"][0]["token_ids"], answer["weight_version"]


@torch.no_grad()
def greedy_of(model: Any) -> list[int]:
    """The same by transformers (and peft)."""
    ids = list(PROMPT.encode())
    for _ in range(16):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[-16:]


def base_model() -> Any:
    return AutoModelForCausalLM.from_pretrained(resolve_model("tiny"), dtype=torch.float32)


def test_adapters_side_by_side(server: ServerProcess, client: Client, make_trainer: TrainerFactory, slots: Job) -> None:
    first, second = make_trainer(lora=LORA, **ADAMW), make_trainer(lora={"rank": 2}, seed=1, **ADAMW)
    plain = greedy(client, slots, version=0)
    assert plain == greedy_of(base_model())
    train(client, first)
    train(client, second, steps=4, rows=ROWS[1:2])
    synced = client.weights.sync(first, slots, verify=True)
    assert (synced.adapter, synced.weight_version) == ("default", 3)
    assert client.weights.sync(second, slots, adapter="other", verify=True).adapter == "other"
    expected = {}
    for job, name in ((first, "default"), (second, "other")):
        saved = client.training.save_checkpoint(job)
        assert saved.export_path == ""
        model = peft.PeftModel.from_pretrained(base_model(), saved.adapter_path)
        expected[name] = greedy_of(model)
    # What names no adapter uses the one that was synced without a name.
    assert greedy(client, slots, version=3) == greedy(client, slots, "default", 3) == expected["default"]
    assert greedy(client, slots, "other", 4) == expected["other"]
    assert greedy(client, slots, "base", 0) == plain
    assert len({tuple(plain), *map(tuple, expected.values())}) == 3
    for model, tokens, version in (
        ("any", expected["default"], 3),
        ("other", expected["other"], 4),
        ("base", plain, 0),
    ):
        assert by_openai(server, slots, model) == (tokens, version)
    found = client.jobs.get(slots)
    assert [(a.name, a.weight_version, a.training_job_id, a.rank) for a in found.adapters] == [
        ("default", 3, first.job_id, 4),
        ("other", 4, second.job_id, 2),
    ]
    assert found.weight_version == client.weights.get_version(slots).weight_version == 3
    assert client.weights.get_version(slots, adapter="other").weight_version == 4
    assert client.weights.get_version(slots, adapter="base").weight_version == 0
    for job, name in ((first, ""), (second, "other")):
        assert client.weights.get_norm(slots, adapter=name).norm == pytest.approx(client.weights.get_norm(job).norm)
        assert sums(client, slots, adapter=name) == sums(client, job)
    with pytest.raises(FailedPreconditionError, match="has version 4"):
        client.sampling.generate(PROMPT, job=slots, adapter="other", min_weight_version=5)
    third = make_trainer(lora={"rank": 1})
    with pytest.raises(FailedPreconditionError, match=r"holds 2 of at most 2 adapters \(default, other\)"):
        client.weights.sync(third, slots, adapter="third")
    with pytest.raises(FailedPreconditionError, match=rf"'other' .* is training_job/{second.job_id}'s"):
        client.weights.sync(third, slots, adapter="other")
    client.weights.unload_adapter("other", sampling_job=slots)
    with pytest.raises(NotFoundError, match="has no adapter 'other'; there are: base, default"):
        greedy(client, slots, "other")
    assert client.weights.sync(third, slots, adapter="third").weight_version == 0
    assert greedy(client, slots, "third", 0) == plain  # a fresh adapter changes nothing
    assert sums(client, slots, adapter="base") == sums(client)


def test_log_probs_agree_and_an_adapter_goes_with_the_model_that_it_was_trained_on(
    server: ServerProcess, client: Client, make_trainer: TrainerFactory, slots: Job
) -> None:
    job = make_trainer(lora=LORA, num_workers=2, zero_stage=2, max_tokens_per_micro_batch=20, **ADAMW)
    train(client, job)
    client.weights.sync(job, slots)
    trained = client.training.fwd_no_grad(job, {"input_ids": ROWS}).log_probs_shifted
    for row, values in zip(ROWS, trained, strict=True):
        (score,) = client.sampling.log_probs([row], job=slots)
        assert score.weight_version == 3
        assert score.prompt.log_probs is not None
        np.testing.assert_allclose(score.prompt.log_probs[1:], values[:-1], atol=1e-3)
    tokens = greedy(client, slots, version=3)
    with pytest.raises(FailedPreconditionError, match=r"no slots for adapters: sync with merge.*max_loras"):
        client.weights.sync(job)
    merged = client.weights.sync(job, merge=True, verify=True)
    assert (merged.adapter, merged.weight_version) == ("", 3)
    assert greedy(client, None, version=3) == tokens
    assert sums(client) == sums(client, job, merged=True)
    # A whole model ends the adapter that requests without a name used, or it would be added twice.
    client.weights.sync(job, slots, merge=True)
    assert client.jobs.get(slots).adapters == ()
    assert greedy(client, slots, version=3) == tokens
    refused(client, job, slots, rf"serves the weights of training_job/{job.job_id} in version 3")
    client.sampling.sleep(2, job=slots)
    client.sampling.wake(job=slots)  # with the model as it was
    other_weights_under_it(server, client, make_trainer, slots, job)


def refused(client: Client, job: Job, sampler: Job, what: str, **options: Any) -> None:
    """The adapter is not synced, for the sampler serves something else than what it is trained on."""
    before = client.jobs.get(sampler).adapters
    with pytest.raises(FailedPreconditionError, match=rf"trains its adapter on .*{what}.*Sync with merge") as caught:
        client.weights.sync(job, sampler, **options)
    assert caught.value.reason == "ADAPTER_BASE_DIFFERS"
    assert client.jobs.get(sampler).adapters == before


def other_weights_under_it(
    server: ServerProcess, client: Client, make_trainer: TrainerFactory, slots: Job, job: Job
) -> None:
    """The sampler's base becomes a full job's weights, and then its own again; `job` is a LoRA job in version 3."""
    full = make_trainer()
    client.training.fwd_bwd(full, {"input_ids": ROWS}, loss="cross_entropy")
    client.training.step(full, learning_rate=0.0)
    client.weights.sync(full, slots)
    client.weights.sync(job, slots, adapter="polite", verify=True)  # version 1 of another job, and the same weights
    greedy(client, slots, "polite", 3)
    train(client, full, steps=1)
    client.weights.sync(full, slots)
    serves = f"serves the weights of training_job/{full.job_id} in version 2"
    with pytest.raises(FailedPreconditionError, match=f"'polite' was trained on .*, but .* now {serves}") as caught:
        greedy(client, slots, "polite")
    assert caught.value.reason == "ADAPTER_BASE_DIFFERS"
    assert [adapter.base_differs for adapter in client.jobs.get(slots).adapters] == [True]
    with pytest.raises(urllib.error.HTTPError, match="400"):
        by_openai(server, slots, "polite")
    refused(client, job, slots, serves, adapter="polite")
    saved = client.training.save_checkpoint(full)
    on_it = make_trainer(model=f"checkpoint:{saved.name}", lora=LORA, **ADAMW)
    client.weights.unload_adapter("polite", sampling_job=slots)
    train(client, on_it)
    client.weights.sync(on_it, slots, verify=True)
    (score,) = client.sampling.log_probs(ROWS[:1], job=slots)
    trained = client.training.fwd_no_grad(on_it, {"input_ids": ROWS[:1]}).log_probs_shifted[0]
    assert score.prompt.log_probs is not None
    np.testing.assert_allclose(score.prompt.log_probs[1:], trained[:-1], atol=1e-3)
    adapter = client.training.save_checkpoint(job)
    with pytest.raises(FailedPreconditionError, match=f"on tiny, the job trains one on checkpoint:{saved.name}"):
        client.training.load_checkpoint(on_it, adapter)
    noted = Path(adapter.path) / "checkpoint.json"
    facts = json.loads(noted.read_text())
    assert facts["lora"].pop("base")["model"] == "tiny"
    noted.write_text(json.dumps(facts))
    client.training.load_checkpoint(on_it, adapter)  # saved by a server that did not note what it was trained on
    client.sampling.sleep(2, job=slots)
    client.sampling.wake(job=slots)
    with pytest.raises(FailedPreconditionError, match=r"'default' was trained on .*, but .* now serves tiny"):
        greedy(client, slots)
    refused(client, on_it, slots, "serves tiny")
    client.weights.sync(on_it, slots, merge=True)
    assert client.jobs.get(slots).adapters == ()


def test_checkpoints(client: Client, make_trainer: TrainerFactory) -> None:
    job = make_trainer(lora=LORA, **ADAMW)
    train(client, job)
    saved = client.training.save_checkpoint(job, merge=True)
    small = client.training.save_checkpoint(job)
    assert small.size_bytes < saved.size_bytes / 4
    train(client, job)
    other = make_trainer(lora=LORA, seed=5, zero_stage=1, **ADAMW)
    client.training.load_checkpoint(other, small)
    train(client, other)
    assert sums(client, other) == sums(client, job)  # bit for bit, the optimizer's state included
    client.training.load_checkpoint(job, saved)
    merged = AutoModelForCausalLM.from_pretrained(saved.export_path, dtype=torch.float32)
    loaded = peft.PeftModel.from_pretrained(base_model(), saved.adapter_path)
    assert greedy_of(merged) == greedy_of(loaded)
    whole = make_trainer(model=f"checkpoint:{saved.name}")  # goes on with all weights
    assert sums(client, whole) == sums(client, job, merged=True)
    with pytest.raises(FailedPreconditionError, match="save it with merge"):
        make_trainer(model=f"checkpoint:{small.name}")
    for wrong, text in (
        ({"lora": {"rank": 4, "alpha": 4}}, r"alpha is 8.0, the job has 4.0"),
        ({}, "weights of an adapter, the job has of a whole model"),
    ):
        with pytest.raises(FailedPreconditionError, match=text):
            client.training.load_checkpoint(make_trainer(**wrong, **ADAMW), small)


def test_bad_input(client: Client, make_trainer: TrainerFactory, slots: Job) -> None:
    for lora, field in (({"rank": 0}, "training.lora.rank"), ({"rank": 2, "alpha": 0}, "training.lora.alpha")):
        with pytest.raises(InvalidArgumentError, match=field):
            make_trainer(lora=lora)
    with pytest.raises(InvalidArgumentError, match=r"training.lora.target_modules\[1\].*there are down_proj, .*q_proj"):
        make_trainer(lora={"rank": 2, "target_modules": ["q_proj", "query"]})
    whole, large = make_trainer(), make_trainer(lora={"rank": 5})
    with pytest.raises(FailedPreconditionError, match=r"trains rank 5, .* at most max_lora_rank 4"):
        client.weights.sync(large, slots)
    for options in ({"adapter": "a"}, {"merge": True}):
        with pytest.raises(InvalidArgumentError, match="trains all weights"):
            client.weights.sync(whole, slots, **options)
    with pytest.raises(InvalidArgumentError, match="trains all weights"):
        client.training.save_checkpoint(whole, merge=True)
    with pytest.raises(InvalidArgumentError, match="without merge"):
        client.weights.sync(large, slots, adapter="a", merge=True)
    with pytest.raises(InvalidArgumentError, match="names the model itself"):
        client.weights.sync(large, slots, adapter="base")
    with pytest.raises(InvalidArgumentError, match="letters, digits"):
        client.weights.sync(large, slots, adapter="a b")
    with pytest.raises(NotFoundError, match="no adapter 'none'; there are: base"):
        client.sampling.log_probs(["x"], job=slots, adapter="none")
    with pytest.raises(NotFoundError, match="no adapter 'default'"):
        client.weights.unload_adapter(sampling_job=slots)
    assert Path(resolve_model("tiny")).is_dir()
