"""SamplingService on a fake engine: streams keep their protocol, and a caller that leaves frees its place."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from grpc import StatusCode

from gradwire.v1 import job_pb2, sampling_params_pb2, sampling_pb2
from tests.rpc.support import Served, failure, ids_prompt, text_prompt, until


def stream_request(text: str = "abcd", **params: object) -> sampling_pb2.GenerateStreamRequest:
    return sampling_pb2.GenerateStreamRequest(
        prompt=text_prompt(text),
        params=sampling_params_pb2.SamplingParams(**params),  # type: ignore[arg-type]
    )


async def gone(served: Served) -> None:
    """Wait until the engine works on nothing."""
    await until(lambda: not served.engines.samplers[0].open)


async def test_prompts_of_every_form_are_continued_in_order(served: Served) -> None:
    request = sampling_pb2.GenerateRequest(
        prompts=[text_prompt("abc"), ids_prompt(7, 8)],
        params=sampling_params_pb2.SamplingParams(n=2, max_tokens=3, temperature=0.7),
    )
    response = await served.sampling.Generate(request)
    assert [[c.text for c in result.completions] for result in response.results] == [["cba"] * 2, ["\x08\x07"] * 2]
    assert np.frombuffer(response.results[1].prompt.token_ids, "<i4").tolist() == [7, 8]
    completion = response.results[0].completions[1]
    assert completion.index == 1
    assert [(s.version, s.start, s.end) for s in completion.weight_spans] == [(0, 0, 3)]
    assert (response.usage.prompt_tokens, response.usage.completion_tokens) == (5, 10)
    assert response.params.top_p == 1.0
    assert response.params.temperature == np.float32(0.7)


async def test_a_model_without_a_template_refuses_chat(served: Served) -> None:
    chat = sampling_params_pb2.Chat(messages=[sampling_params_pb2.ChatMessage(role="user", content="hi")])
    failed = await failure(
        served.sampling.Generate(sampling_pb2.GenerateRequest(prompts=[sampling_params_pb2.Prompt(chat=chat)]))
    )
    assert failed.code is StatusCode.INVALID_ARGUMENT


async def test_scores_are_cut_where_the_completion_begins(served: Served) -> None:
    items = [sampling_pb2.ScoreItem(prompt=text_prompt("abc"), text="de"), sampling_pb2.ScoreItem(prompt=ids_prompt(1))]
    response = await served.sampling.LogProbs(sampling_pb2.LogProbsRequest(items=items))
    first, second = response.scores
    assert np.frombuffer(first.prompt.log_probs.values, "<f4").shape == (3,)
    assert np.frombuffer(first.completion_log_probs.values, "<f4").shape == (2,)
    assert np.frombuffer(first.completion_token_ids, "<i4").tolist() == [100, 101]
    assert second.completion_token_ids == b""


@pytest.mark.parametrize("n", [1, 3])
async def test_a_stream_is_one_start_deltas_without_gaps_and_one_end(served: Served, n: int) -> None:
    events = [event async for event in served.sampling.GenerateStream(stream_request(n=n))]
    assert [event.HasField("start") for event in events] == [True, *[False] * (len(events) - 1)]
    assert [event.HasField("end") for event in events] == [*[False] * (len(events) - 1), True]
    assert events[0].start.params.n == n
    next_token = dict.fromkeys(range(n), 0)
    for event in events:
        for delta in event.delta.completions:
            assert delta.first_token_index == next_token[delta.index]
            next_token[delta.index] += len(delta.token_ids) // 4
            assert [(s.start, s.end) for s in delta.weight_spans] == [
                (delta.first_token_index, next_token[delta.index])
            ]
    ends = events[-1].end.completions
    assert [(end.index, end.num_tokens) for end in ends] == [(index, 4) for index in range(n)]
    assert all(end.finish_reason == sampling_pb2.FINISH_REASON_LENGTH for end in ends)
    assert events[-1].end.usage.completion_tokens == 4 * n


async def test_the_first_token_comes_before_the_second_is_sampled(served: Served) -> None:
    engine = served.engines.samplers[0]
    engine.token_gate = asyncio.Semaphore(1)
    call = served.sampling.GenerateStream(stream_request())
    events = aiter(call)
    assert (await anext(events)).HasField("start")
    assert (await anext(events)).delta.completions[0].text == "d"
    assert engine.open
    for _ in range(3):
        engine.token_gate.release()
    rest = [event async for event in events]
    assert rest[-1].HasField("end")


async def test_a_cancelled_stream_frees_its_place_in_the_engine(served: Served) -> None:
    served.engines.samplers[0].token_gate = asyncio.Semaphore(1)
    call = served.sampling.GenerateStream(stream_request())
    events = aiter(call)
    await anext(events)
    assert served.engines.samplers[0].open
    call.cancel()
    await gone(served)


async def test_a_cancelled_call_frees_all_its_places(served: Served) -> None:
    engine = served.engines.samplers[0]
    engine.token_gate = asyncio.Semaphore(0)
    call = served.sampling.Generate(sampling_pb2.GenerateRequest(prompts=[text_prompt("ab")] * 3))
    await engine.opened.wait()
    call.cancel()
    await gone(served)


async def test_a_deadline_frees_the_place_too(served: Served) -> None:
    served.engines.samplers[0].token_gate = asyncio.Semaphore(0)
    request = sampling_pb2.GenerateRequest(prompts=[text_prompt("ab")])
    assert (await failure(served.sampling.Generate(request, timeout=0.05))).code is StatusCode.DEADLINE_EXCEEDED
    stream = served.sampling.GenerateStream(stream_request(), timeout=0.05)
    assert (await failure(stream)).code is StatusCode.DEADLINE_EXCEEDED
    await gone(served)


async def test_one_bad_prompt_of_several_ends_the_others(served: Served) -> None:
    served.engines.samplers[0].token_gate = asyncio.Semaphore(0)
    request = sampling_pb2.GenerateRequest(prompts=[text_prompt("ab"), ids_prompt(*range(64))])
    assert (await failure(served.sampling.Generate(request))).fields == ["prompts[1].token_ids"]
    await gone(served)


async def test_sleep_and_wake_show_in_the_job(served: Served) -> None:
    async def state() -> int:
        return int((await served.jobs.GetJob(job_pb2.GetJobRequest())).job.state)

    slept = await served.sampling.Sleep(sampling_pb2.SleepRequest(level=2))
    assert (slept.changed, slept.memory.before_bytes, slept.memory.after_bytes) == (True, 2000, 1000)
    assert await state() == job_pb2.JOB_STATE_SLEEPING
    assert not (await served.sampling.Sleep(sampling_pb2.SleepRequest(level=2))).changed
    failed = await failure(served.sampling.Generate(sampling_pb2.GenerateRequest(prompts=[text_prompt("a")])))
    assert failed.code is StatusCode.FAILED_PRECONDITION
    assert (await served.sampling.Wake(sampling_pb2.WakeRequest(part=sampling_pb2.WAKE_PART_WEIGHTS))).changed
    assert await state() == job_pb2.JOB_STATE_SLEEPING
    await served.sampling.Wake(sampling_pb2.WakeRequest(part=sampling_pb2.WAKE_PART_KV_CACHE))
    assert await state() == job_pb2.JOB_STATE_READY
    assert not (await served.sampling.Wake(sampling_pb2.WakeRequest())).changed


async def test_pause_and_resume_reach_the_engine(served: Served) -> None:
    await served.sampling.Pause(sampling_pb2.PauseRequest())
    assert served.engines.samplers[0].paused
    await served.sampling.Resume(sampling_pb2.ResumeRequest())
    assert not served.engines.samplers[0].paused
    await served.sampling.ResetPrefixCache(sampling_pb2.ResetPrefixCacheRequest())
