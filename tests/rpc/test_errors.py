"""What a caller sees of an error: code, ErrorInfo always, and the details that go with the code."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from grpc import StatusCode

from gradwire.server.errors import GradwireError
from gradwire.v1 import (
    job_pb2,
    sampling_params_pb2,
    sampling_pb2,
    tensor_pb2,
    training_pb2,
    weight_pb2,
)
from tests.rpc.support import Served, failure, ids_prompt, serving, small_batch, text_prompt

SECRET = "/home/someone/secret.txt"


async def test_rules_of_the_protos_name_the_field(served: Served) -> None:
    request = sampling_pb2.GenerateRequest(
        prompts=[text_prompt("a"), text_prompt("")],
        params=sampling_params_pb2.SamplingParams(temperature=-1, logit_bias={5: 200.0}),
    )
    failed = await failure(served.sampling.Generate(request))
    assert failed.code is StatusCode.INVALID_ARGUMENT
    assert failed.reason == "INVALID_FIELD"
    assert sorted(failed.fields) == ["params.logit_bias[5]", "params.temperature", "prompts[1].text"]


async def test_rules_between_fields_name_the_field(served: Served) -> None:
    params = sampling_params_pb2.SamplingParams(min_tokens=5, max_tokens=4)
    request = sampling_pb2.GenerateRequest(prompts=[text_prompt("a")], params=params)
    assert (await failure(served.sampling.Generate(request))).fields == ["params.min_tokens"]


async def test_what_an_engine_refuses_is_named_as_the_request_names_it(served: Served) -> None:
    long = ids_prompt(*range(64))
    generate = sampling_pb2.GenerateRequest(prompts=[text_prompt("a"), long])
    failed = await failure(served.sampling.Generate(generate))
    assert (failed.reason, failed.fields) == ("PROMPT_TOO_LONG", ["prompts[1].token_ids"])
    stream = served.sampling.GenerateStream(sampling_pb2.GenerateStreamRequest(prompt=long))
    assert (await failure(stream)).fields == ["prompt.token_ids"]
    score = sampling_pb2.LogProbsRequest(items=[sampling_pb2.ScoreItem(prompt=long)])
    assert (await failure(served.sampling.LogProbs(score))).fields == ["items[0].prompt.token_ids"]


async def test_bad_tensors_name_their_column(served: Served) -> None:
    batch = small_batch()
    batch.advantages.dense.CopyFrom(tensor_pb2.Tensor(dtype=tensor_pb2.DATA_TYPE_FLOAT32, shape=[2**62, 4], data=b""))
    request = training_pb2.FwdBwdRequest(job_id=await served.training_job(), batch=batch)
    assert (await failure(served.training.FwdBwd(request))).fields == ["batch.advantages.dense.shape"]


async def test_a_token_outside_the_vocabulary_is_found_before_the_trainer(served: Served) -> None:
    batch = small_batch()
    batch.input_ids.dense.data = np.array([[1, 2, 3], [4, 256, 6]], "<i4").tobytes()
    failed = await failure(
        served.training.FwdBwd(training_pb2.FwdBwdRequest(job_id=await served.training_job(), batch=batch))
    )
    assert failed.fields == ["batch.input_ids"]
    assert "row 1 holds token 256" in failed.text


async def test_what_is_missing_is_named(served: Served) -> None:
    for call, resource in (
        (served.jobs.GetJob(job_pb2.GetJobRequest(job_id=9)), ("job", "9")),
        (served.weights.CommitUpdate(weight_pb2.CommitUpdateRequest(update_id="u")), ("update", "u")),
        (
            served.training.LoadCheckpoint(
                training_pb2.LoadCheckpointRequest(job_id=await served.training_job(), name="none")
            ),
            ("checkpoint", "none"),
        ),
    ):
        failed = await failure(call)
        assert failed.code is StatusCode.NOT_FOUND
        assert failed.resource == resource
        assert failed.reason == f"{resource[0].upper()}_NOT_FOUND"


async def test_a_wrong_state_says_what_is_in_it(served: Served) -> None:
    request = sampling_pb2.GenerateRequest(prompts=[text_prompt("a")], min_weight_version=3)
    failed = await failure(served.sampling.Generate(request))
    assert failed.code is StatusCode.FAILED_PRECONDITION
    assert failed.precondition == ("WEIGHTS_TOO_OLD", "sampling_job/1")
    assert failed.metadata == {"weight_version": "0"}


async def test_a_transport_that_is_not_there_is_a_wrong_state(served: Served) -> None:
    request = weight_pb2.SyncRequest(
        training_job_id=await served.training_job(), transport=weight_pb2.WEIGHT_TRANSPORT_NCCL
    )
    failed = await failure(served.weights.Sync(request))
    assert failed.precondition[0] == failed.reason == "TRANSPORT_UNAVAILABLE"


async def test_a_dead_sampler_is_unavailable_at_first_and_then_a_failed_job(served: Served) -> None:
    from gradwire.server.errors import Unavailable

    engine = served.engines.samplers[0]
    engine.generate_error = Unavailable("ENGINE_DEAD", "it died")
    engine.dead = "it died"
    request = sampling_pb2.GenerateRequest(prompts=[text_prompt("abc")])
    failed = await failure(served.sampling.Generate(request))
    assert (failed.code, failed.reason, failed.retry_after > 0) == (StatusCode.UNAVAILABLE, "ENGINE_DEAD", True)
    assert (await failure(served.sampling.Generate(request))).reason == "JOB_FAILED"


@pytest.mark.parametrize("method", ["Generate", "GenerateStream", "FwdBwd"])
async def test_an_unexpected_exception_shows_none_of_its_text(
    served: Served, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    error = RuntimeError(SECRET)
    served.engines.samplers[0].generate_error = error
    if method == "Generate":
        prompts = [text_prompt("a"), text_prompt("b")]
        failed = await failure(served.sampling.Generate(sampling_pb2.GenerateRequest(prompts=prompts)))
    elif method == "GenerateStream":
        request = sampling_pb2.GenerateStreamRequest(prompt=text_prompt("a"))
        failed = await failure(served.sampling.GenerateStream(request))
    else:
        job_id = await served.training_job()
        served.engines.trainers[0].error = error
        failed = await failure(served.training.FwdBwd(training_pb2.FwdBwdRequest(job_id=job_id, batch=small_batch())))
    assert failed.code is StatusCode.INTERNAL
    assert SECRET not in failed.text + str(failed.details)
    correlation_id = failed.metadata["correlation_id"]
    assert correlation_id in failed.text
    assert any(correlation_id in record.getMessage() and record.exc_info for record in caplog.records)


async def test_an_internal_error_that_we_meant_keeps_its_text_and_is_logged(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.engines.samplers[0].generate_error = GradwireError("WORKER_FAILED", "the worker failed")
    with caplog.at_level(logging.ERROR):
        failed = await failure(served.sampling.Generate(sampling_pb2.GenerateRequest(prompts=[text_prompt("a")])))
    assert (failed.code, failed.reason, failed.text) == (StatusCode.INTERNAL, "WORKER_FAILED", "the worker failed")
    assert "the worker failed" in caplog.text


async def test_thousands_of_violations_still_arrive_with_details(served: Served) -> None:
    request = sampling_pb2.GenerateRequest(prompts=[text_prompt("")] * 4096)
    failed = await failure(served.sampling.Generate(request))
    assert failed.code is StatusCode.INVALID_ARGUMENT
    assert failed.fields[0] == "prompts[0].text"


@pytest.mark.parametrize("model", ["模型" * 500, "~nobody/x", "no-such-model", "/etc", "a\0b"])
async def test_a_model_of_any_name_that_is_not_there_is_a_bad_field(served: Served, model: str) -> None:
    request = job_pb2.CreateJobsRequest(sampling=job_pb2.SamplingJobConfig(model=model))
    failed = await failure(served.jobs.CreateJobs(request))
    assert failed.code is StatusCode.INVALID_ARGUMENT
    assert failed.fields == ["sampling.model"]


async def test_a_service_that_is_not_served_says_so(served: Served) -> None:
    for call in (served.raw("/gradwire.v1.InferenceService/Nothing"), served.raw("/gradwire.v1.Nothing/AtAll")):
        failed = await failure(call)
        assert (failed.code, failed.reason) == (StatusCode.UNIMPLEMENTED, "METHOD_NOT_SERVED")
    failed = await failure(served.raw("/gradwire.v1.InferenceService/Generate"))
    assert failed.text.endswith(
        "it has GetStatus, GetAction, GetActionStream, Predict, GenerateReply, GenerateReplyStream"
    )


async def test_a_message_over_the_cap_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, limits={"max_message_bytes": 1 << 20}) as served:
        small = sampling_pb2.GenerateRequest(prompts=[text_prompt("x")], cache_salt="s")
        await served.sampling.Generate(small)
        large = sampling_pb2.GenerateRequest(prompts=[text_prompt("x" * (3 << 20))])
        assert (await failure(served.sampling.Generate(large))).code is StatusCode.RESOURCE_EXHAUSTED
        await served.sampling.Generate(small)  # the connection lives on
