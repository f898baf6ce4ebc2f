"""A deployed language model on real engines: a conversation, a reply that breaks off, and weights that it follows."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from gradwire.client import Client, SessionMessage
from tests.e2e.conftest import TrainerFactory

NAME = "e2e-helper"


@pytest.fixture
def deployed(client: Client) -> Iterator[str]:
    """A deployment of the server's own model."""
    params = {"max_tokens": 24, "temperature": 0, "ignore_eos": True}
    client.deployments.deploy_llm(NAME, params=params, system_prompt="Answer in verse, and answer at length.")
    yield NAME
    client.deployments.undeploy(NAME)


def test_two_turns_share_their_prefix_and_are_stored(client: Client, deployed: str) -> None:
    first = client.inference.generate("Once upon a time there was", deployment_id=deployed)
    (reply,) = first.replies
    assert len(reply.completion.token_ids) == 24
    with client.inference.generate_stream(
        "And then?", session_id=reply.session_id, deployment_id=deployed, log_probs=0
    ) as stream:
        parts = list(stream)
        assert stream.session_id == reply.session_id and stream.num_dropped_messages == 0
        assert stream.usage.cached_tokens >= first.usage.prompt_tokens // 16 * 16 > 0  # whole blocks of what was read
    assert len(parts) > 1 and all(part.log_probs is not None for part in parts if len(part.token_ids))
    text = "".join(part.text for part in parts)
    messages = client.sessions.get(reply.session_id, deployment_id=deployed).messages
    assert [(m.role, m.content, m.incomplete) for m in messages] == [
        ("user", "Once upon a time there was", False), ("assistant", reply.text, False),
        ("user", "And then?", False), ("assistant", text, False),
    ]  # fmt: skip
    assert client.sessions.delete(reply.session_id, deployment_id=deployed)


def test_a_client_that_vanishes_frees_its_slot_and_leaves_what_came(client: Client, deployed: str) -> None:
    stream = client.inference.generate_stream(
        "Tell me all", session_id="broken", max_tokens=400, deployment_id=deployed
    )
    seen = [next(stream) for _ in range(3)]
    stream.cancel()
    end = time.monotonic() + 20
    messages: tuple[SessionMessage, ...] = ()
    while time.monotonic() < end and len(messages) < 2:
        messages = client.sessions.get("broken", deployment_id=deployed).messages
        time.sleep(0.05)
    reply = messages[1]
    assert reply.incomplete and reply.content.startswith("".join(part.text for part in seen)[:20])
    again = client.inference.generate("Go on", session_id="broken", deployment_id=deployed)  # nobody holds the session
    assert len(again.replies[0].completion.token_ids) == 24
    assert client.sessions.delete("broken", deployment_id=deployed)


def test_it_follows_a_training_job(client: Client, make_trainer: TrainerFactory, deployed: str) -> None:
    trainer = make_trainer()
    made = client.deployments.deploy_llm(
        deployed, follow=trainer, params={"temperature": 0, "max_tokens": 8}, replace=True
    )

    def ask() -> tuple[str, list[int]]:
        (reply,) = client.inference.generate("abc", deployment_id=deployed).replies
        return reply.text, [span.version for span in reply.completion.weight_spans]

    before, versions = ask()
    assert versions == [made.weight_version] and made.weights_training_job_id != trainer.job_id
    for step in range(made.weight_version + 3):  # to a version that the sampler never had
        client.training.fwd_bwd(trainer, {"input_ids": [list(b"abcabcabcabcabc")]}, loss="cross_entropy")
        client.training.step(trainer, learning_rate=0.05 if step < 3 else 0.0)
    synced = client.weights.sync(trainer)
    status = client.inference.get_status(deployment_id=deployed)
    assert (status.weight_version, status.training_job_id) == (synced.weight_version, trainer.job_id)
    assert status.instance_id == made.instance_id  # nothing was redeployed
    after, versions = ask()
    assert versions == [synced.weight_version] and after != before
