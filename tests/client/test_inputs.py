"""What callers may write: prompts, parameters, configurations, values; and what wrong ones are told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradwire.client import (
    AsyncClient,
    CreatedJobs,
    FinishReason,
    InFlightPolicy,
    Job,
    JobKind,
    JobState,
    LogProbEngine,
    LogProbJobConfig,
    LoraConfig,
    OptimizerConfig,
    SamplingJobConfig,
    SamplingParams,
    SchedulerConfig,
    Scope,
    StructuredOutput,
    TokenKind,
    TrainingJobConfig,
    TrainingSleepMode,
    WakePart,
    WeightTransport,
)
from gradwire.client._convert.enums import enum_from_proto, enum_to_proto
from gradwire.client._convert.inference import put_value, value_from_proto
from gradwire.client._convert.jobs import create_to_proto, forward_job_id, job_from_proto, job_id, training_job_id
from gradwire.client._convert.large import with_value
from gradwire.client._convert.nearest import unknown_name
from gradwire.client._convert.prompts import prompts_to_proto
from gradwire.client._convert.sampling import params_from_proto, params_to_proto, score_items_to_proto
from gradwire.client._convert.shared import Lent
from gradwire.client._core.rpc import Encoded
from gradwire.client._core.shared import SegmentPool
from gradwire.client.types.deployments import DeploymentState
from gradwire.client.types.inference import DeploymentKind, MemoryScope
from gradwire.client.types.sampling import SamplingKeywords
from gradwire.client.types.weights import DataType
from gradwire.v1 import (
    admin_pb2,
    deployment_pb2,
    inference_pb2,
    job_pb2,
    sampling_params_pb2,
    sampling_pb2,
    tensor_pb2,
    training_pb2,
    weight_pb2,
)
from tests.client.fake import Fake
from tests.client.wire import int32

CHAT = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("prompts", "forms"),
    [
        ("hi", ["text"]),
        (["hi", "you"], ["text", "text"]),
        ([1, 2], ["token_ids"]),
        ((1, 2), ["token_ids"]),
        (np.array([1, 2]), ["token_ids"]),
        (np.array([[1, 2], [3, 4]]), ["token_ids"] * 2),
        ([np.int64(1)], ["token_ids"]),
        (CHAT, ["chat"]),
        ([CHAT, "hi", [1], np.array([2])], ["chat", "text", "token_ids", "token_ids"]),
        ([[1, 2], [3]], ["token_ids", "token_ids"]),
    ],
)
def test_forms_of_prompts(prompts: Any, forms: list[str]) -> None:
    assert [prompt.WhichOneof("content") for prompt in prompts_to_proto(prompts)] == forms


@pytest.mark.parametrize(
    ("prompts", "complaint"),
    [
        ("", "empty text"),
        ([], "prompts is empty"),
        (["hi", ""], r"prompts\[1\] is empty"),
        ([[1], []], r"prompts\[1\] is an empty list"),
        (["hi", "\ud800!"], r"prompts\[1\] is no text: character 0 is half a surrogate pair"),
        ([{"role": "user", "content": "a\udc00"}], r"prompt\[0\] is no text: character 1"),
        ({"role": "user"}, r"^prompts is \{'role': 'user'\} \(dict\); a prompt is text, token ids"),
        (b"hi", r"^prompts is b'hi' \(bytes\); a prompt is"),
        (7, r"^prompts is 7 \(int\); a prompt is"),
        ([1, -2], "between 0"),
        ([1, 2**40], "between 0"),
        ([1.5], "prompt"),
        ([[["hi"]]], r"prompts\[0\]"),
        ([{"role": "user", "text": "hi"}], "'text' is not known"),
        ([{"role": "user"}], "needs a role and a content"),
    ],
)
def test_wrong_prompts(prompts: Any, complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        prompts_to_proto(prompts)


def test_torch_prompt() -> None:
    torch = pytest.importorskip("torch")
    assert prompts_to_proto(torch.tensor([1, 2]))[0].token_ids == int32(1, 2)


def test_parameters_from_dataclass_dict_and_keywords() -> None:
    for params in (SamplingParams(n=2, temperature=0.5), {"n": 2, "temperature": 0.5}):
        message = params_to_proto(params, {"temperature": np.float32(0.0), "stop": "END", "logit_bias": {5: -1}})
        assert (message.n, message.temperature, list(message.stop)) == (2, 0, ["END"])
        assert message.HasField("temperature")
        assert not message.HasField("top_p")
        assert dict(message.logit_bias) == {5: -1}


def test_parameters_come_back() -> None:
    params = SamplingParams(
        n=2, stop=("a",), seed=0, logit_bias={1: 2.0}, structured_output=StructuredOutput(regex="a+")
    )
    assert params_from_proto(params_to_proto(params, {})) == params
    assert repr(params).startswith("SamplingParams(n=2, stop=('a',), seed=0, logit_bias={1: 2.0}")


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"temprature": 1}, "did you mean 'temperature'"),
        ({"max_new_tokens": 1}, "did you mean 'max_tokens'"),
        ({"regex": "a"}, r"'regex' is in 'structured_output': \{'structured_output': \{'regex': \.\.\.\}\}"),
        ({"max_tokens": "many"}, r"^params\.max_tokens is 'many' \(str\); it takes a whole number$"),
        ({"max_tokens": -1}, r"^params\.max_tokens is -1 \(int\); it takes a whole number of 0 to 4294967295$"),
        ({"temperature": "hot"}, r"^params\.temperature is 'hot' \(str\); it takes a number$"),
        ({"ignore_eos": "no"}, r"^params\.ignore_eos is 'no' \(str\); it takes True or False$"),
        ({"stop": 5}, r"^params\.stop is 5 \(int\); it takes text or a list of such$"),
        ({"stop": ["a", 5]}, r"^params\.stop is \['a', 5\] \(list\); it takes text or a list of such$"),
        ({"stop_token_ids": 5}, r"^params\.stop_token_ids is 5 \(int\); it takes a list, each of it a whole number$"),
        (
            {"logit_bias": [1]},
            r"^params\.logit_bias is \[1\] \(list\); it takes a dict from a whole number to a number$",
        ),
        ({"structured_output": {"json": {}}}, "did you mean 'json_"),
        ({"structured_output": {"regex": "a", "choice": ["b"]}}, "exactly one"),
        ({"structured_output": {}}, "is empty"),
        ({"structured_output": {"choice": 5}}, r"^params\.structured_output\.choice is 5 \(int\)"),
        ({"stop": ["\ud800"]}, r"params\.stop: .*surrogates"),
    ],
)
def test_wrong_parameters(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError), match=complaint):
        params_to_proto(None, wrong)


async def test_a_misspelt_keyword_of_a_call(client: AsyncClient) -> None:
    with pytest.raises(TypeError, match="did you mean 'top_p'"):
        await client.sampling.generate("hi", topp=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="give a dict"):
        await client.sampling.generate("hi", 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^top_k is -1 \(int\); it takes a whole number of 0 to"):
        await client.sampling.log_probs("hi", top_k=-1)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda c: c.training.step(1, learning_rate="x"), r"^learning_rate is 'x' \(str\); it takes a number$"),
        (lambda c: c.training.save_checkpoint(1, 5), r"^name is 5 \(int\); it takes text$"),
        (lambda c: c.training.load_checkpoint(1, 5), r"^checkpoint is 5 \(int\); it takes text$"),
        (lambda c: c.training.fwd_bwd(1, {"input_ids": [[1, 2]]}, loss=5), r"^loss is 5 \(int\)"),
        (lambda c: c.training.fwd_bwd(1, {"input_ids": [[1, 2]]}, loss_config=5), r"^loss_config is 5 \(int\)"),
        (lambda c: c.training.fwd_no_grad(1, {"input_ids": [[1, 2]]}, temperature="x"), r"^temperature is 'x' \(str\)"),
        (lambda c: c.sampling.generate("hi", priority="x"), r"^priority is 'x' \(str\); it takes a whole number$"),
        (lambda c: c.sampling.log_probs("hi", 5), r"^completions is 5 \(int\)"),
        (lambda c: c.sampling.log_probs(["hi"], {"a": 1}), r"^completions is \{'a': 1\} \(dict\)"),
        (lambda c: c.sampling.sleep("x"), r"^level is 'x' \(str\); it takes a whole number$"),
        (lambda c: c.weights.sync(1, verify="x"), r"^verify is 'x' \(str\); it takes True or False$"),
        (lambda c: c.sampling.generate("hi", timeout="x"), r"^timeout is 'x'"),
    ],
)
async def test_an_argument_of_a_wrong_type(client: AsyncClient, call: Any, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        await call(client)


def test_structured_output() -> None:
    schema = {"type": "object"}
    message = params_to_proto(None, {"structured_output": {"json_schema": schema}})
    assert message.structured_output.json_schema == '{"type": "object"}'
    message = params_to_proto(None, {"structured_output": StructuredOutput(choice=["a", "b"])})
    assert list(message.structured_output.choice.options) == ["a", "b"]


def test_what_is_scored() -> None:
    (item,) = score_items_to_proto("a", " b")
    assert item.text == " b"
    (item,) = score_items_to_proto([1, 2], [3])
    assert item.token_ids == int32(3)
    (item,) = score_items_to_proto("a", None)
    assert item.WhichOneof("completion") is None
    items = score_items_to_proto(["a", CHAT], [[4], "c"])
    assert [item.WhichOneof("completion") for item in items] == ["token_ids", "text"]
    with pytest.raises(ValueError, match="2 prompts and 1 completions"):
        score_items_to_proto(["a", "b"], ["c"])
    with pytest.raises(ValueError, match=r"completions\[0\] is no text"):
        score_items_to_proto("a", "\udfff")


@pytest.mark.parametrize(
    ("kind", "wrapper"),
    [
        (FinishReason, sampling_pb2.FinishReason),
        (InFlightPolicy, sampling_pb2.InFlightPolicy),
        (WakePart, sampling_pb2.WakePart),
        (TrainingSleepMode, training_pb2.TrainingSleepMode),
        (JobKind, job_pb2.JobKind),
        (JobState, job_pb2.JobState),
        (LogProbEngine, job_pb2.LogProbEngine),
        (WeightTransport, weight_pb2.WeightTransport),
        (DataType, tensor_pb2.DataType),
        (Scope, admin_pb2.Scope),
        (TokenKind, admin_pb2.TokenKind),
        (DeploymentState, deployment_pb2.DeploymentState),
        (DeploymentKind, inference_pb2.DeploymentKind),
        (MemoryScope, inference_pb2.MemoryScope),
    ],
)
def test_enums_are_those_of_the_contract(kind: Any, wrapper: Any) -> None:
    for name, number in wrapper.items():
        member = enum_from_proto(kind, wrapper, number)
        assert enum_to_proto(wrapper, member, "x") == name
    assert len(kind) == len(wrapper.items())
    assert enum_from_proto(kind, wrapper, 9999) is kind.UNSPECIFIED
    assert enum_to_proto(wrapper, None, "x").endswith("UNSPECIFIED")


def test_a_wrong_enum_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"did you mean 'weights'\? Known: kv_cache, weights$"):
        enum_to_proto(sampling_pb2.WakePart, "weight", "part")
    with pytest.raises(ValueError, match=r"value 'FP16' is not known; did you mean 'float16'"):
        enum_to_proto(tensor_pb2.DataType, "FP16", "dtype")
    assert "did you mean 'LIFO'?" in unknown_name("order", "lifo", ("LIFO", "any"))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (SamplingParams, sampling_params_pb2.SamplingParams),
        (SamplingKeywords, sampling_params_pb2.SamplingParams),
        (StructuredOutput, sampling_params_pb2.StructuredOutput),
        (TrainingJobConfig, job_pb2.TrainingJobConfig),
        (SamplingJobConfig, job_pb2.SamplingJobConfig),
        (LogProbJobConfig, job_pb2.LogProbJobConfig),
        (OptimizerConfig, job_pb2.OptimizerConfig),
        (SchedulerConfig, job_pb2.SchedulerConfig),
        (LoraConfig, job_pb2.LoraConfig),
    ],
)
def test_fields_are_those_of_the_contract(kind: Any, message: Any) -> None:
    assert set(kind.__annotations__) == set(message.DESCRIPTOR.fields_by_name)


def test_job_configurations() -> None:
    dataclass = TrainingJobConfig(
        model="tiny",
        optimizer=OptimizerConfig(learning_rate=1e-3),
        lora={"rank": 8, "target_modules": ["q_proj"]},
        loss_config={"clip": 0.2, "steps": 3, "names": ("a",), "nested": {"on": True, "off": None}},
    )
    mapping = {
        "model": "tiny",
        "optimizer": {"learning_rate": 1e-3},
        "lora": LoraConfig(rank=8, target_modules=["q_proj"]),
        "loss_config": dataclass.loss_config,
    }
    request = create_to_proto(dataclass, None, LogProbJobConfig(engine="deepspeed"), 30, "id")
    assert request.training == create_to_proto(mapping, None, None, None, "id").training
    assert request.training.optimizer.learning_rate == 1e-3
    assert request.log_prob.engine == job_pb2.LOG_PROB_ENGINE_DEEPSPEED
    assert request.lease.seconds == 30
    assert not request.HasField("sampling")
    assert create_to_proto(None, {}, None, None, "id").HasField("sampling")

    job = job_from_proto(job_pb2.Job(job_id=1, training=request.training))
    assert isinstance(job.config, TrainingJobConfig)
    assert job.config.loss_config == {"clip": 0.2, "steps": 3, "names": ["a"], "nested": {"on": True, "off": None}}
    assert job.config.optimizer == OptimizerConfig(learning_rate=1e-3)
    assert job.config.lora == LoraConfig(rank=8, target_modules=("q_proj",))
    scored = job_from_proto(job_pb2.Job(job_id=1, log_prob=request.log_prob)).config
    assert scored == LogProbJobConfig(engine=LogProbEngine.DEEPSPEED)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"optimiser": {}}, r"training key 'optimiser' is not known; did you mean 'optimizer'"),
        ({"optimizer": {"lr": 1}}, "training.optimizer key 'lr' is not known; did you mean 'learning_rate'"),
        ({"lora": {"r": 1}}, "training.lora key 'r' is not known; did you mean 'rank'"),
        (
            {"learning_rate": 1},
            r"'learning_rate' is in 'optimizer': \{'optimizer': \{'learning_rate': \.\.\.\}\}\. Known",
        ),
        ({"lr": 1}, "'learning_rate' is in 'optimizer'"),
        ({"norm_grad_max": 1}, "did you mean 'max_grad_norm'"),
        ({"optimizer": 3}, r"training\.optimizer is 3 \(int\); give a dict or an object of class OptimizerConfig$"),
        ({"zero_stage": "two"}, r"training\.zero_stage"),
        ({"loss_config": {"f": object()}}, r"loss_config\.f: a object has no place in JSON"),
    ],
)
def test_wrong_job_configurations(config: dict[str, Any], complaint: str) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        create_to_proto(config, None, None, None, "id")


async def test_nothing_to_create(client: AsyncClient) -> None:
    with pytest.raises(ValueError, match="nothing to create"):
        await client.jobs.create()


def test_jobs_by_reference() -> None:
    job = job_from_proto(job_pb2.Job(job_id=5))
    assert isinstance(job, Job)
    refs: list[Any] = [job, 5, np.int64(5), None]
    assert [job_id(ref) for ref in refs] == [5, 5, 5, 0]
    for wrong in ("5", True, 1.5):
        with pytest.raises(TypeError, match=r"^job is .*; it takes a Job or its integer id"):
            job_id(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^training_job is 0 \(int\); ids begin with 1"):
        job_id(0, "training_job")


def test_what_is_no_single_job_says_which_it_takes() -> None:
    made = CreatedJobs(tuple(job_from_proto(job_pb2.Job(kind=kind)) for kind in (1, 2)))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^job is all that jobs\.create made; it takes one job of them: \.tr.* or \.s"):
        job_id(made)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^training_job is None; it takes a training job: the Job that jobs\.create"):
        training_job_id(None, "training_job")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^job is None; it takes a training or log-prob job"):
        forward_job_id(None)  # type: ignore[arg-type]


def test_values() -> None:
    value = {"pos": np.ones(2), "rest": (np.array(3), [1, 2])}
    message = inference_pb2.Value()
    put_value(message, value, "observation")
    again: Any = value_from_proto(message)
    assert isinstance(again, dict)
    assert np.array_equal(again["pos"], np.ones(2))
    assert [part.tolist() for part in again["rest"]] == [3, [1, 2]]
    with pytest.raises(TypeError, match=r"observation\['a'\]"):
        put_value(message, {"a": object()}, "observation")


@pytest.mark.parametrize(
    "array",
    [
        np.arange(64 * 64 * 64, dtype=np.uint8).reshape(64, 64, 64),
        np.ones((300, 300), ">f4").T,
        np.arange(1 << 18, dtype=np.int16),
        np.zeros((1000, 3, 100))[:, ::2],
    ],
    ids=lambda array: str(array.dtype),
)
def test_a_large_array_is_encoded_as_any_other(array: Any) -> None:
    asked = inference_pb2.GetActionRequest(deployment_id="x", seed=3, batched=True)
    encoded = with_value(asked, "observation", array, Lent(SegmentPool(False)))
    assert isinstance(encoded, Encoded) and encoded.ByteSize() == len(encoded.SerializeToString())
    put_value(asked.observation, array, "observation")
    assert inference_pb2.GetActionRequest.FromString(encoded.SerializeToString()) == asked
    for other in (array[:1, :1] if array.ndim > 1 else array[:9], {"a": array}, [1.0]):
        asked, same = inference_pb2.GetActionRequest(), inference_pb2.GetActionRequest()
        assert with_value(asked, "observation", other, Lent(SegmentPool(False))) is asked
        put_value(same.observation, other, "observation")
        assert asked == same


async def test_action_options_are_sent_only_when_given(fake: Fake, client: AsyncClient) -> None:
    action = (await client.inference.get_action(np.array([1, 2], np.float32), deterministic=False)).action
    assert np.array_equal(action, [1, 2])  # type: ignore[arg-type]
    await client.inference.get_action([1.0], seed=0)
    first, second = fake.requests["GetAction"]
    assert first.HasField("deterministic")
    assert not first.HasField("seed")
    assert second.HasField("seed")
    assert not second.HasField("deterministic")
