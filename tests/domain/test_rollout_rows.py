"""Training rows of recorded calls: exact, each sampled token once, whatever the agent does with its history."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

import numpy as np
import pytest

from gradwire.server.domain.rollouts.assembly import Assembly, RowStart, assemble
from gradwire.server.domain.rollouts.calls import Asked, Call, CallStatus, retried, steps
from gradwire.server.domain.rollouts.prefixes import PrefixIndex
from gradwire.server.engines.sampling import CompletionDelta, FinishReason, SampleEvent, WeightSpan

PIECES = [
    "<end>",
    "<user>",
    "<assistant>",
    "<tool>",
    "<system>",
    "<think>",
    "</think>",
    "a",
    "b",
    "ab",
    "ba",
    "aba",
    " ",
]
IDS = {piece: number for number, piece in enumerate(PIECES)}
END = IDS["<end>"]
LONGEST_FIRST = sorted(PIECES, key=len, reverse=True)
Message = tuple[str, str]


def encode(text: str) -> list[int]:
    """Greedy: "a" and "b", sampled one after the other, come back as "ab"."""
    ids = []
    while text:
        piece = next(piece for piece in LONGEST_FIRST if text.startswith(piece))
        ids.append(IDS[piece])
        text = text[len(piece) :]
    return ids


def decode(ids: list[int]) -> str:
    return "".join(PIECES[i] for i in ids)


def render(messages: list[Message]) -> list[int]:
    return encode("".join(f"<{role}>{text}<end>" for role, text in messages) + "<assistant>")


@dataclass
class Played:
    """A scripted agent and its model: what was sampled, and in which order calls began and ended."""

    chance: random.Random
    calls: list[Call] = field(default_factory=list)
    sampled: dict[tuple[int, int], tuple[list[int], list[int], list[float]]] = field(default_factory=dict)
    turn: int = 0

    def tick(self) -> int:
        self.turn += 1
        return self.turn

    def begin(self) -> Call:
        call = Call(len(self.calls), Asked(f"r{len(self.calls)}", "chat/completions"), self.tick())
        self.calls.append(call)
        return call

    def answer(
        self, call: Call, prompt: list[int], n: int = 1, status: CallStatus = CallStatus.DONE
    ) -> list[list[int]]:
        answers = [self._sample(call, prompt, index, cut=status is not CallStatus.DONE) for index in range(n)]
        call.seal(status, self.tick())
        return answers

    def ask(self, prompt: list[int], n: int = 1, status: CallStatus = CallStatus.DONE) -> list[list[int]]:
        return self.answer(self.begin(), prompt, n, status)

    def _sample(self, call: Call, prompt: list[int], index: int, *, cut: bool) -> list[int]:
        body = [self.chance.choice([7, 7, 8, 8, 9, 10, 12]) for _ in range(self.chance.randint(1, 9))]
        if self.chance.random() < 0.4:
            body = [IDS["<think>"], *body, IDS["</think>"], IDS["a"]]
        ids = body if cut or self.chance.random() < 0.2 else [*body, END]
        log_probs = [-self.chance.random() for _ in ids]
        place = self.chance.randint(0, len(ids))  # in two pieces, as a stream gives them
        for start, end in ((0, place), (place, len(ids))):
            last = end == len(ids) and not cut
            delta = CompletionDelta(
                index, start, np.array(ids[start:end], np.int32), "", np.array(log_probs[start:end], np.float32),
                weight_spans=(WeightSpan(3 + start, start, end),) if end > start else (),
                finish_reason=FinishReason.STOP if last else None,
            )  # fmt: skip
            call.observe(0, np.array(prompt, np.int32), SampleEvent((delta,)))
        self.sampled[call.index, index] = (prompt, ids, log_probs)
        return ids


def play(chance: random.Random) -> Played:
    """A dialogue with tools, in which the agent does what agents do."""
    played = Played(chance)
    history: list[Message] = [("system", "ab a"), ("user", "aba b")]
    tokens: list[int] | None = render(history) if chance.random() < 0.3 else None  # an agent that keeps tokens
    for _ in range(chance.randint(1, 8)):
        prompt = tokens if tokens is not None else render(history)
        if chance.random() < 0.15:
            played.ask(prompt, status=chance.choice([CallStatus.ABANDONED, CallStatus.FAILED]))
        if chance.random() < 0.15:
            played.ask(prompt)  # the answer was lost on its way
        if chance.random() < 0.15:  # two at once
            calls = [played.begin(), played.begin()]
            played.answer(calls[1], render([("system", "b"), ("user", "ba")]))
            answers = played.answer(calls[0], prompt)
        else:
            answers = played.ask(prompt, n=chance.choice([1, 1, 1, 2, 3]))
        chosen = chance.choice(answers)
        tool = decode([chance.choice([7, 8, 9, 12]) for _ in range(chance.randint(1, 5))])
        if tokens is not None:
            rest = [] if chosen[-1] == END else [END]
            tokens = prompt + chosen + rest + encode(f"<tool>{tool}<end><assistant>")
            continue
        history += [("assistant", decode(chosen).removesuffix("<end>")), ("tool", tool)]
        history = rewritten(history, chance)
    return played


def rewritten(history: list[Message], chance: random.Random) -> list[Message]:
    kind = chance.random()
    if kind < 0.2:  # thinking is stripped from what was said before
        return [
            (role, text.partition("</think>")[2] or text if role == "assistant" else text) for role, text in history
        ]
    if kind < 0.3:  # the history is summarised
        return [history[0], ("user", "ab ab"), history[-1]]
    return history


def check(played: Played, found: Assembly, left_out: set[CallStatus]) -> None:
    again = retried(played.calls)
    seen: dict[tuple[int, int], int] = {}
    for row in found.rows:
        assert len(row.token_ids) == len(row.loss_mask) == len(row.log_probs)
        assert not row.log_probs[~row.loss_mask].any()
        assert row.loss_mask.sum() == sum(turn.end - turn.start for turn in row.turns)
        for turn in row.turns:
            key = turn.call_index, turn.completion_index
            prompt, ids, log_probs = played.sampled[key]
            assert key not in seen
            seen[key] = turn.end - turn.start
            # Trained as sampled, after the very tokens that the model had read.
            assert row.token_ids[turn.start : turn.end].tolist() == ids
            assert row.token_ids[: turn.start].tolist() == prompt
            assert row.loss_mask[turn.start : turn.end].all()
            assert row.log_probs[turn.start : turn.end].tolist() == np.array(log_probs, np.float32).tolist()
            assert [span.start for span in turn.weight_spans][:1] == [0]
            assert turn.weight_spans[-1].end == len(ids)
        if row.parent is not None:
            head = found.rows[row.parent].token_ids[: row.num_shared_tokens]
            assert row.token_ids[: row.num_shared_tokens].tolist() == head.tolist()
    for dropped in found.dropped:
        key = dropped.call_index, dropped.completion_index
        assert dropped.status in left_out
        assert (dropped.status is CallStatus.RETRIED) == (dropped.call_index in again)
        seen[key] = dropped.num_tokens
    assert seen == {key: len(ids) for key, (_, ids, _) in played.sampled.items()}
    trained = sum(int(row.loss_mask.sum()) for row in found.rows)
    assert trained + sum(dropped.num_tokens for dropped in found.dropped) == sum(seen.values())


def test_what_is_trained_is_what_was_sampled_in_200_dialogues() -> None:
    starts = dict.fromkeys(RowStart, 0)
    turns = rows = 0
    for seed in range(200):
        played = play(random.Random(seed))
        found = assemble(played.calls)
        check(played, found, {CallStatus.ABANDONED, CallStatus.FAILED, CallStatus.RETRIED})
        everything = assemble(played.calls, include_retried=True, include_abandoned=True)
        check(played, everything, {CallStatus.FAILED})
        turns += sum(len(row.turns) for row in found.rows)
        rows += len(found.rows)
        for row in found.rows:
            starts[row.start] += 1
    # The dialogues are such that all of it happens: rows that go on, and rows that begin for each reason.
    assert starts[RowStart.FIRST] == 200
    assert min(starts.values()) > 20
    assert turns > rows * 1.2


def test_an_agent_that_keeps_tokens_has_one_row() -> None:
    played = Played(random.Random(1))
    prompt = encode("<user>ab<end><assistant>")
    for _ in range(10):
        prompt = prompt + played.ask(prompt)[0] + encode("<tool>b<end><assistant>")
    (row,) = assemble(played.calls).rows
    assert [turn.step for turn in row.turns] == list(range(10))
    assert row.start is RowStart.FIRST


def test_an_answer_that_encodes_otherwise_begins_a_row() -> None:
    played = Played(random.Random(1))
    first = encode("<user>ab<end><assistant>")
    call = played.begin()
    delta = CompletionDelta(0, 0, np.array([7, 8, END], np.int32), "", np.zeros(3, np.float32))
    call.observe(0, np.array(first, np.int32), SampleEvent((delta,)))
    call.seal(CallStatus.DONE, played.tick())
    played.ask(encode("<user>ab<end><assistant>ab<end><tool>b<end><assistant>"))
    one, two = assemble(played.calls).rows
    assert (two.start, two.parent, two.num_shared_tokens) == (RowStart.ANSWER_CHANGED, 0, len(first))
    assert one.token_ids.tolist() == [*first, 7, 8, END]  # and not "ab"


def test_a_template_that_writes_a_count_at_its_head_gives_each_turn_a_row() -> None:
    played = Played(random.Random(6))
    history: list[Message] = [("user", "ab")]
    for _ in range(5):
        prompt = encode("<system>" + "a " * len(history)) + render(history)
        history += [("assistant", decode(played.ask(prompt)[0]).removesuffix("<end>")), ("tool", "b")]
    found = assemble(played.calls)
    check(played, found, set())
    assert [row.start for row in found.rows] == [RowStart.FIRST, *[RowStart.CONTEXT_CHANGED] * 4]


@pytest.mark.parametrize("later_goes_on", [True, False])
def test_of_two_attempts_the_one_that_is_used_counts(later_goes_on: bool) -> None:
    played = Played(random.Random(2))
    prompt = encode("<user>a<end><assistant>")
    first, second = played.ask(prompt)[0], played.ask(prompt)[0]
    used = second if later_goes_on else first
    played.ask(prompt + used + encode("<tool>b<end><assistant>"))
    # An earlier answer that the dialogue goes on from is no lost one: the later is another branch of it.
    assert retried(played.calls) == ({0} if later_goes_on else set())
    assert steps(played.calls, retried(played.calls)) == ({1: 0, 2: 1} if later_goes_on else {0: 0, 1: 1, 2: 2})


def test_calls_at_the_same_time_are_no_retries() -> None:
    played = Played(random.Random(3))
    prompt = encode("<user>a<end><assistant>")
    calls = [played.begin(), played.begin()]
    for call in calls:
        played.answer(call, prompt)
    rows = assemble(played.calls).rows
    assert [row.start for row in rows] == [RowStart.FIRST, RowStart.BRANCH]
    assert rows[1].num_shared_tokens >= len(prompt)


def test_tokens_without_log_probs_are_a_fault_of_the_engine() -> None:
    call = Played(random.Random(0)).begin()
    delta = CompletionDelta(0, 0, np.array([7], np.int32), "")
    with pytest.raises(RuntimeError, match="0 log-probs of 1"):
        call.observe(0, np.array([1], np.int32), SampleEvent((delta,)))


def test_prefixes_are_found_among_many() -> None:
    chance = random.Random(4)
    index, sequences = PrefixIndex(), []
    for number in range(300):
        sequences.append(np.array([chance.randint(0, 2) for _ in range(chance.randint(1, 9))], np.int32))
        assert index.add(sequences[-1]) == number
        if chance.random() < 0.3:
            chosen = chance.randrange(len(sequences))
            sequences[chosen] = np.concatenate([sequences[chosen], sequences[-1]])
            index.replace(chosen, sequences[chosen])
        prompt = np.array([chance.randint(0, 2) for _ in range(12)], np.int32)
        shared = [int(np.cumprod(s[:12] == prompt[: len(s)]).sum()) for s in sequences]
        assert {n for n, s in enumerate(sequences) if shared[n] == len(s)} == set(index.heads(prompt))
        closest, length = index.closest(prompt)
        assert shared[closest] == length == max(shared)


def test_a_long_rollout_takes_no_long_time() -> None:
    played = Played(random.Random(5))
    head = np.arange(20_000, dtype=np.int32) % 13
    for turn in range(1500):  # each rewrites its history, and every second one is asked twice
        prompt = np.concatenate([head, np.array([turn // 2, 1], np.int32)])
        call = played.begin()
        delta = CompletionDelta(0, 0, np.array([7, END], np.int32), "", np.zeros(2, np.float32))
        call.observe(0, prompt, SampleEvent((delta,)))
        call.seal(CallStatus.DONE, played.tick())
    began = time.perf_counter()
    found = assemble(played.calls)
    assert time.perf_counter() - began < 20  # and not the minutes of comparing all with all
    assert (len(found.rows), len(found.dropped)) == (750, 750)
