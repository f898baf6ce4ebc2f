"""The generated servicers behind a `Fake`: they record, answer what is easily known, and fail as they are told."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf.duration_pb2 import Duration

from gradwire.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    inference_pb2,
    inference_pb2_grpc,
    job_pb2,
    job_pb2_grpc,
    sampling_pb2,
    sampling_pb2_grpc,
    training_pb2,
    training_pb2_grpc,
    weight_pb2,
    weight_pb2_grpc,
)
from tests.client.wire import fail, failure, float32, int32

if TYPE_CHECKING:
    from tests.client.fake import Fake


class Sampling(sampling_pb2_grpc.SamplingServiceServicer):
    """Says "hello" in three tokens."""

    def __init__(self, fake: Fake) -> None:
        self.fake = fake

    async def Generate(self, request: Any, context: Any) -> sampling_pb2.GenerateResponse:
        """One completion a prompt."""
        await self.fake.arrive("Generate", request, context)
        log_probs = sampling_pb2.TokenLogProbs(
            values=float32(-1, -2, -3), top_k=2, top_token_ids=int32(1, 2, 3, 4, 5, -1), top_values=float32(*[-1.0] * 6)
        )
        completion = sampling_pb2.Completion(
            text="hello",
            token_ids=int32(5, 6, 7),
            log_probs=log_probs if request.params.HasField("log_probs") else None,
            weight_spans=[sampling_pb2.WeightSpan(version=3, start=0, end=3)],
            finish_reason="FINISH_REASON_STOP",
            stop_reason=sampling_pb2.StopReason(token_id=7),
        )
        prompt = sampling_pb2.PromptInfo(token_ids=int32(1, 2), num_cached_tokens=1)
        result = sampling_pb2.PromptResult(prompt=prompt, completions=[completion])
        usage = sampling_pb2.Usage(prompt_tokens=2, completion_tokens=3, cached_tokens=1)
        return sampling_pb2.GenerateResponse(
            results=[result] * len(request.prompts), params=request.params, usage=usage
        )

    async def GenerateStream(self, request: Any, context: Any) -> AsyncIterator[sampling_pb2.GenerateStreamResponse]:
        """A start, `fake.deltas`, an end; never ends when the fake stalls."""
        self.fake.requests["GenerateStream"].append(request)
        if self.fake.failures["GenerateStream"]:
            await fail(context, self.fake.failures["GenerateStream"].pop(0))
        prompt = sampling_pb2.PromptInfo(token_ids=int32(1, 2))
        yield sampling_pb2.GenerateStreamResponse(start=sampling_pb2.StreamStart(params=request.params, prompt=prompt))
        counts: defaultdict[int, int] = defaultdict(int)
        for parts in self.fake.deltas:
            for part in parts:
                counts[part.index] = part.first_token_index + len(part.token_ids) // 4
            yield sampling_pb2.GenerateStreamResponse(delta=sampling_pb2.StreamDelta(completions=parts))
        if self.fake.stall:
            await self.fake.linger("GenerateStream")
        ends = [
            sampling_pb2.CompletionEnd(index=i, finish_reason="FINISH_REASON_LENGTH", num_tokens=n)
            for i, n in sorted(counts.items())
        ]
        usage = sampling_pb2.Usage(prompt_tokens=2, completion_tokens=sum(counts.values()), cached_tokens=1)
        yield sampling_pb2.GenerateStreamResponse(end=sampling_pb2.StreamEnd(completions=ends, usage=usage))

    async def Sleep(self, request: Any, context: Any) -> sampling_pb2.SleepResponse:
        """Frees 60 bytes."""
        await self.fake.arrive("Sleep", request, context)
        memory = sampling_pb2.MemoryChange(before_bytes=100, after_bytes=40)
        return sampling_pb2.SleepResponse(memory=memory, changed=True)

    async def LogProbs(self, request: Any, context: Any) -> sampling_pb2.LogProbsResponse:
        """Scores each item with two tokens."""
        await self.fake.arrive("LogProbs", request, context)
        values = sampling_pb2.TokenLogProbs(values=float32(-0.5, -0.25))
        score = sampling_pb2.Score(
            prompt=sampling_pb2.PromptInfo(token_ids=int32(1)),
            completion_token_ids=int32(8, 9),
            completion_log_probs=values,
            weight_version=4,
        )
        return sampling_pb2.LogProbsResponse(scores=[score] * len(request.items))


class Training(training_pb2_grpc.TrainingServiceServicer):
    """Applies each request id once and echoes the batch's ids as log-probs."""

    def __init__(self, fake: Fake) -> None:
        self.fake = fake

    async def Step(self, request: Any, context: Any) -> training_pb2.StepResponse:
        """Counts steps; loses `fake.drop_responses` answers after applying them."""
        await self.fake.arrive("Step", request, context)
        done = self.fake.applied.setdefault(
            request.operation.request_id, training_pb2.StepResponse(step=len(self.fake.applied) + 1, weight_version=1)
        )
        if self.fake.drop_responses:
            self.fake.drop_responses -= 1
            await fail(context, failure("UNAVAILABLE", "the answer was lost"))
        assert isinstance(done, training_pb2.StepResponse)
        return done

    async def FwdBwd(self, request: Any, context: Any) -> training_pb2.FwdBwdResponse:
        """Returns input_ids as float32 in their own layout."""
        await self.fake.arrive("FwdBwd", request, context)
        batch = request.batch
        if request.batch_id:
            batch = training_pb2.TrainingBatch.FromString(self.fake.uploads[int(request.batch_id)])
        outputs = echo(batch.input_ids) if request.return_outputs else None
        return training_pb2.FwdBwdResponse(loss=1.5, metrics={"approx_kl": 0.25}, log_probs_shifted=outputs)

    async def UploadBatch(self, request_iterator: Any, context: Any) -> training_pb2.UploadBatchResponse:
        """Checks length and checksum, and names the batch by its number."""
        header, data = None, b""
        sizes = []
        async for message in request_iterator:
            if message.WhichOneof("part") == "header":
                header = message.header
            else:
                sizes.append(len(message.chunk))
                data += message.chunk
        assert header is not None
        await self.fake.arrive("UploadBatch", header, context)
        assert header.total_bytes == len(data)
        assert header.sha256 == hashlib.sha256(data).digest()
        assert max(sizes) <= 1024 * 1024
        self.fake.uploads.append(data)
        return training_pb2.UploadBatchResponse(batch_id=str(len(self.fake.uploads) - 1))


def echo(column: Any) -> Any:
    """A column of int32 or int64 as float32, in its layout."""
    answer = type(column)()
    answer.CopyFrom(column)
    part = answer.dense if answer.HasField("dense") else answer.ragged
    part.data = np.frombuffer(part.data, "<i8" if part.dtype == 4 else "<i4").astype("<f4").tobytes()
    part.dtype = 7
    return answer


class Weights(weight_pb2_grpc.WeightServiceServicer):
    """Collects the pieces of an update."""

    def __init__(self, fake: Fake) -> None:
        self.fake = fake
        self.received: dict[str, bytearray] = defaultdict(bytearray)

    async def BeginUpdate(self, request: Any, context: Any) -> weight_pb2.BeginUpdateResponse:
        """Begins."""
        await self.fake.arrive("BeginUpdate", request, context)
        return weight_pb2.BeginUpdateResponse(update_id="u1", total_bytes=1)

    async def TransferUpdate(self, request_iterator: Any, context: Any) -> weight_pb2.TransferUpdateResponse:
        """Takes pieces in order."""
        first = True
        async for message in request_iterator:
            assert bool(message.update_id) == first
            first = False
            assert message.offset == len(self.received[message.name])
            self.received[message.name] += message.data
            self.fake.requests["TransferUpdate"].append(message)
        total = sum(map(len, self.received.values()))
        return weight_pb2.TransferUpdateResponse(received_bytes=total, complete_tensors=len(self.received))

    async def CommitUpdate(self, request: Any, context: Any) -> weight_pb2.CommitUpdateResponse:
        """Checks the checksums of the manifest."""
        await self.fake.arrive("CommitUpdate", request, context)
        for spec in self.fake.requests["BeginUpdate"][-1].manifest:
            assert hashlib.sha256(self.received[spec.name]).digest() == spec.sha256
        return weight_pb2.CommitUpdateResponse(weight_version=9, pause_time=Duration(nanos=500_000_000))

    async def AbortUpdate(self, request: Any, context: Any) -> weight_pb2.AbortUpdateResponse:
        """Gives up."""
        await self.fake.arrive("AbortUpdate", request, context)
        return weight_pb2.AbortUpdateResponse()

    async def Sync(self, request: Any, context: Any) -> weight_pb2.SyncResponse:
        """Says how long."""
        await self.fake.arrive("Sync", request, context)
        times = Duration(nanos=250_000_000)
        return weight_pb2.SyncResponse(
            weight_version=2, transport="WEIGHT_TRANSPORT_FILE", pause_time=times, total_time=times
        )


class Jobs(job_pb2_grpc.JobServiceServicer):
    """Makes job 7."""

    def __init__(self, fake: Fake) -> None:
        self.fake = fake

    async def CreateJobs(self, request: Any, context: Any) -> AsyncIterator[job_pb2.CreateJobsResponse]:
        """Two lines of progress, a failure if one is left, the job."""
        self.fake.requests["CreateJobs"].append(request)
        for text in ("loading", "compiling"):
            yield job_pb2.CreateJobsResponse(progress=job_pb2.JobProgress(job_id=7, message=text))
        if self.fake.failures["CreateJobs"]:
            await fail(context, self.fake.failures["CreateJobs"].pop(0))
        job = job_pb2.Job(job_id=7, kind="JOB_KIND_TRAINING", state="JOB_STATE_READY", training=request.training)
        yield job_pb2.CreateJobsResponse(created=job_pb2.CreatedJobs(jobs=[job]))

    async def DestroyJob(self, request: Any, context: Any) -> job_pb2.DestroyJobResponse:
        """Ends it."""
        await self.fake.arrive("DestroyJob", request, context)
        return job_pb2.DestroyJobResponse()

    async def Heartbeat(self, request: Any, context: Any) -> job_pb2.HeartbeatResponse:
        """Renews."""
        await self.fake.arrive("Heartbeat", request, context)
        return job_pb2.HeartbeatResponse(leases=[job_pb2.Lease(job_id=i) for i in request.job_ids])

    async def WatchJob(self, request: Any, context: Any) -> AsyncIterator[job_pb2.WatchJobResponse]:
        """Ready, then gone."""
        for state in ("READY", "DESTROYED"):
            yield job_pb2.WatchJobResponse(job=job_pb2.Job(job_id=7, state=f"JOB_STATE_{state}"), message=state)


class Admin(admin_pb2_grpc.AdminServiceServicer):
    """Knows the fake's limits."""

    def __init__(self, fake: Fake) -> None:
        self.fake = fake

    async def GetCapabilities(self, request: Any, context: Any) -> admin_pb2.GetCapabilitiesResponse:
        """Limits."""
        await self.fake.arrive("GetCapabilities", request, context)
        return admin_pb2.GetCapabilitiesResponse(version="1", max_message_bytes=self.fake.max_message_bytes)

    async def CreateToken(self, request: Any, context: Any) -> admin_pb2.CreateTokenResponse:
        """A token."""
        await self.fake.arrive("CreateToken", request, context)
        return admin_pb2.CreateTokenResponse(token=admin_pb2.Token(token_id="t"), secret="gw-secret")

    async def ListTokens(self, request: Any, context: Any) -> admin_pb2.ListTokensResponse:
        """Two pages."""
        await self.fake.arrive("ListTokens", request, context)
        number = int(request.page_token or 0)
        token = admin_pb2.Token(token_id=f"t{number}")
        return admin_pb2.ListTokensResponse(tokens=[token], next_page_token="1" if number == 0 else "")


class Inference(inference_pb2_grpc.InferenceServiceServicer):
    """Returns what it was given."""

    def __init__(self, fake: Fake) -> None:
        self.fake = fake

    async def GetAction(self, request: Any, context: Any) -> inference_pb2.GetActionResponse:
        """The observation."""
        await self.fake.arrive("GetAction", request, context)
        tensor = request.observation.tensor
        if tensor.HasField("shared_memory"):
            path = Path("/dev/shm", tensor.shared_memory.name)
            tensor.data = path.read_bytes()[: tensor.shared_memory.length]  # noqa: ASYNC240
        return inference_pb2.GetActionResponse(action=request.observation)

    async def GenerateReply(self, request: Any, context: Any) -> inference_pb2.GenerateReplyResponse:
        """Fails as told."""
        await self.fake.arrive("GenerateReply", request, context)
        return inference_pb2.GenerateReplyResponse()


# The stubs' servicers are abstract; a method that is left out here answers UNIMPLEMENTED.
SERVICES: list[tuple[Any, Any]] = [
    (sampling_pb2_grpc.add_SamplingServiceServicer_to_server, Sampling),
    (training_pb2_grpc.add_TrainingServiceServicer_to_server, Training),
    (weight_pb2_grpc.add_WeightServiceServicer_to_server, Weights),
    (job_pb2_grpc.add_JobServiceServicer_to_server, Jobs),
    (admin_pb2_grpc.add_AdminServiceServicer_to_server, Admin),
    (inference_pb2_grpc.add_InferenceServiceServicer_to_server, Inference),
]
