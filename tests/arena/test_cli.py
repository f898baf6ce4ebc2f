"""`gradwire agent`: what it sends, remembers and prints, with a deployment without an engine."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.rpc import error_details_pb2

from gradwire.client.arena.cli import shown
from gradwire.client.arena.cli.policy import shaped
from gradwire.client.reporting import json_line
from gradwire.server.cli import main
from tests.arena.fake import STATUS, FakeAgent
from tests.client.wire import failure, retry_info

Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(fake: FakeAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs `gradwire agent ...` against the fake: exit code, stdout, stderr."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("GRADWIRE_ADDRESS", fake.address)

    def run(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = main(["agent", *arguments])
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def sessions_of(fake: FakeAgent) -> list[str | None]:
    return [r.session_id if r.HasField("session_id") else None for r in fake.requests["GenerateReplyStream"]]


def test_prompts_continue_one_chat_until_another_is_wanted(cli: Cli, fake: FakeAgent, tmp_path: Path) -> None:
    assert cli("generate", "chat", "--prompt", "hi") == (0, "Hello\n", "started session new\n")
    assert cli("generate", "chat", "--prompt", "and?") == (0, "Hello\n", "")
    cli("generate", "chat", "--prompt", "once", "--session", "other")
    cli("generate", "chat", "--prompt", "goes on")
    cli("generate", "chat", "--prompt", "afresh", "--new-session")
    assert cli("sessions", "resume", "chat", "--session-id", "s1")[:2] == (0, "prompts continue session s1\n")
    cli("generate", "chat", stdin="from stdin")
    assert json.loads(cli("sessions", "clear", "chat", "--json")[1]) == {"cleared": True}
    assert json.loads(cli("sessions", "clear", "chat", "--json")[1]) == {"cleared": False}
    cli("generate", "chat", "--prompt", "afresh")
    assert sessions_of(fake) == [None, "new", "other", "new", None, "s1", None]
    assert fake.requests["GenerateReplyStream"][5].prompt == "from stdin"
    file = tmp_path / "gradwire" / "agents.json"
    assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("damaged {")
    assert cli("generate", "chat", "--prompt", "afresh")[2] == "started session new\n"


def test_a_reply_for_programs_is_lines_of_json(cli: Cli, fake: FakeAgent) -> None:
    flags = ["--max-new-tokens", "5", "--top-k", "2", "--seed", "3", "--stop", "x", "--stop", "y", "--greedy"]
    code, out, _ = cli("generate", "--json", "--prompt", "hi", *flags)
    *pieces, end = lines(out)
    assert code == 0 and pieces == [{"text": "Hel"}, {"text": "lo"}]
    assert end["session_id"] == "new" and end["finish_reason"] == "length" and end["usage"]["completion_tokens"] == 3
    params = fake.requests["GenerateReplyStream"][0].params
    assert (params.max_tokens, params.seed, list(params.stop), params.temperature) == (5, 3, ["x", "y"], 0)


def test_a_chat_on_stdin(cli: Cli, fake: FakeAgent) -> None:
    code, out, _ = cli("run", stdin="one\n\ntwo\n/new\nthree\n/quit\nfour\n")
    assert (code, out) == (0, "Hello\nHello\nHello\n")
    assert [r.prompt for r in fake.requests["GenerateReplyStream"]] == ["one", "two", "three"]
    assert sessions_of(fake) == [None, "new", None]


def test_run_makes_a_deployment_the_current_one(cli: Cli, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("run", f"{fake.address}/chat", "--select") == (0, "", "")
    monkeypatch.delenv("GRADWIRE_ADDRESS")
    assert cli("generate", "--prompt", "hi")[0] == 0
    assert fake.requests["GenerateReplyStream"][0].deployment_id == "chat"


def test_a_token_comes_from_a_file(cli: Cli, fake: FakeAgent, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    assert cli("status", "--token-file", str(tmp_path / "token"))[0] == 0
    assert fake.metadata[0]["authorization"] == "Bearer secret"
    assert "No such file" in cli("status", "--token-file", str(tmp_path / "gone"))[2]


def test_status(cli: Cli, fake: FakeAgent) -> None:
    code, out, _ = cli("status")
    assert code == 0 and ["kind", "language", "model"] in [line.split() for line in out.splitlines()]
    found = json.loads(cli("status", "--json")[1])
    assert (found["deployment_id"], found["agent"]["llm"], found["memory_scope"]) == ("chat", True, "user")


def test_sessions(cli: Cli, fake: FakeAgent) -> None:
    cli("sessions", "resume", "--session", "s1")
    assert cli("sessions", "list")[1].splitlines()[1].split() == ["●", "s1", "2"]
    (row,) = json.loads(cli("sessions", "list", "--json")[1])
    assert row["current"] and row["session_id"] == "s1"
    assert "user\n  Hi" in cli("sessions", "get", "s1")[1]
    assert json.loads(cli("sessions", "get", "s1", "--json")[1])["messages"][0]["content"] == "Hi"
    assert cli("sessions", "delete", "s1")[2].endswith("pass --yes\n")
    assert cli("sessions", "delete", "s1", "--yes")[1] == "deleted session s1\n"
    assert json.loads(cli("sessions", "clear", "--json")[1]) == {"cleared": False}  # deleting it forgot it, too
    assert json.loads(cli("sessions", "delete", "s2", "--yes", "--json")[1]) == {"session_id": "s2", "deleted": False}
    fake.failures["GetSession"].append(failure("NOT_FOUND", "none"))
    code, _, err = cli("sessions", "resume", "--session", "s9")
    assert code == 1 and "Session 's9' not found." in err
    assert "Pass --session" in cli("sessions", "resume")[2]


def test_actions_for_observations_on_stdin(cli: Cli, fake: FakeAgent, tmp_path: Path) -> None:
    fake.status = STATUS["recurrent"]
    np.save(tmp_path / "o.npy", np.array([5, 6], np.uint8))
    (tmp_path / "o.json").write_text("[7]")
    masked = '{"observation": [3, 4], "info": {"action_mask": [1, 0]}}'
    given = f"[1.0, 2.0]\n{masked}\n\n{tmp_path}/o.npy\n{tmp_path}/o.json\n"
    code, out, _ = cli("run", "--deterministic", "--seed", "4", stdin=given)
    assert (code, lines(out)) == (0, [[1.0, 2.0], [3, 4], [5, 6], [7]])
    sent = fake.requests["GetAction"]
    assert [r.HasField("hidden_state") for r in sent] == [False, True, False, True]
    assert [r.HasField("action_mask") for r in sent] == [False, True, False, False]
    assert sent[0].deterministic and sent[0].seed == 4
    assert lines(cli("run", "--json", stdin="[1]\n")[1]) == [{"action": [1]}]
    for junk in ("[1\n", "[" * 100_000 + "\n"):
        assert "neither JSON nor" in cli("run", stdin=junk)[2]
    fake.status = STATUS["supervised"]
    assert lines(cli("run", stdin="[[1, 2]]\n")[1]) == [[[1, 2]]]
    assert lines(cli("run", "--json", stdin="[1]\n")[1])[0]["outputs"] == [1]


def test_json_takes_the_form_of_the_space() -> None:
    box = {"type": "Box"}
    pair = {"type": "Tuple", "spaces": [box, {"type": "Dict", "spaces": {"a": box}}]}
    found = shaped([[1, 2], {"a": [3]}], pair)
    assert isinstance(found, tuple) and found[0].tolist() == [1, 2] and found[1]["a"].tolist() == [3]
    assert shaped([[1, 2]], box).shape == (1, 2) and shaped([[1, 2]], None).shape == (1, 2)


class Terminal(io.StringIO):
    """A person at a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_person_is_asked(cli: Cli, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[str | None] = []

    def answer(prompt: str) -> str:
        if (text := answers.pop(0)) is None:
            raise EOFError
        return text

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr(io, "StringIO", Terminal)  # what `cli` makes of stdin
    answers += ["1", "7", "n", "y"]
    assert cli("sessions", "resume")[1] == "prompts continue session s1\n"
    assert cli("sessions", "resume")[::2] == (1, "  1  s1  2 messages\nnothing resumed\n")
    assert cli("sessions", "delete", "s1")[0] == 1 and not fake.requests["DeleteSession"]
    assert cli("sessions", "delete", "s1")[1] == "deleted session s1\n"
    # An error of one prompt does not end a chat; the end of input does.
    fake.failures["GenerateReplyStream"].append(failure("RESOURCE_EXHAUSTED", "busy"))
    answers += ["one", "two", None]
    code, out, err = cli("run")
    assert (code, out) == (0, "Hello\n\n") and "busy" in err and "/new begins a new chat" in err
    assert not answers


def test_what_goes_wrong_is_said_and_is_exit_code_1(cli: Cli, fake: FakeAgent) -> None:
    fake.failures["GenerateReplyStream"].append(failure("INVALID_ARGUMENT", "params.top_p: must be at most 1"))
    code, out, err = cli("generate", "--prompt", "hi")
    assert (code, out) == (1, "") and "must be at most 1" in err
    fake.failures["GetStatus"].append(failure("UNAUTHENTICATED", "no token"))
    code, _, err = cli("status")
    assert code == 1 and "Pass --token-file, or set ARENA_API_KEY" in err and "api_key=" not in err
    assert "leave --address out" in cli("status", f"{fake.address}/x", "--address", "elsewhere")[2]
    with pytest.raises(SystemExit):
        cli("generate", "--session", "a", "--new-session", "--prompt", "hi")


def test_with_json_an_error_is_an_object_on_stderr(cli: Cli, fake: FakeAgent, tmp_path: Path) -> None:
    bad = error_details_pb2.BadRequest()
    bad.field_violations.add(field="params.top_p", description="must be at most 1")
    said = failure(
        "INVALID_ARGUMENT", "params.top_p: must be at most 1", error_details_pb2.ErrorInfo(reason="INVALID_FIELD"), bad
    )
    fake.failures["GenerateReplyStream"].append(said)
    code, out, err = cli("generate", "--json", "--prompt", "hi")
    assert (code, out) == (1, "")
    assert json.loads(err)["error"] == {
        "message": "params.top_p: must be at most 1",
        "status": "INVALID_ARGUMENT",
        "reason": "INVALID_FIELD",
        "field_violations": [{"field": "params.top_p", "description": "must be at most 1"}],
        "retry_after": None,
        "correlation_id": None,
    }
    fake.failures["GenerateReplyStream"].append(failure("RESOURCE_EXHAUSTED", "busy", retry_info(0.5)))
    error = json.loads(cli("generate", "--json", "--prompt", "hi")[2])["error"]
    assert (error["status"], error["retry_after"]) == ("RESOURCE_EXHAUSTED", 0.5)
    fake.failures["GetStatus"].append(failure("UNAUTHENTICATED", "no token"))
    error = json.loads(cli("status", "--json")[2])["error"]
    assert error["status"] == "UNAUTHENTICATED" and "Pass --token-file" in error["message"]
    # What no server said has the same form, and a reply that goes well leaves stderr to errors.
    error = json.loads(cli("status", "--json", "--token-file", str(tmp_path / "gone"))[2])["error"]
    assert error["status"] is None and "No such file" in error["message"]
    assert cli("generate", "--json", "--prompt", "hi")[::2] == (0, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["agent", "generate", "--json", "--jsn"], "unrecognized arguments: --jsn"),
        (["token", "create", "--tenant", "me", "--scope", "train", "--js"], "invalid choice: 'train'"),
        (["job", "destroy", "--json"], "arguments are required: ID"),
        (["deplo", "--json"], "invalid choice: 'deplo'"),
        (["deployments", "--json=yes"], "ignored explicit argument 'yes'"),
    ],
)
def test_with_json_a_command_line_that_cannot_be_read_is_an_object(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    out, err = capsys.readouterr()
    error = json.loads(err)["error"]
    assert (ended.value.code, out, error["status"]) == (2, "", None) and said in error["message"]
    with pytest.raises(SystemExit) as ended:  # without it, as argparse says it
        main([argument for argument in arguments if not argument.startswith("--js")] + ["--no", "--", "--json"])
    assert ended.value.code == 2 and capsys.readouterr().err.startswith("usage: gradwire")


def test_a_table_for_a_person_cuts_nothing_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    for installed in (True, False):
        out = Terminal()
        if not installed:
            monkeypatch.setitem(sys.modules, "rich", None)
        shown.table(("", "SESSION"), [("●", "[red]" + "x" * 60)], out)
        text = "".join(out.getvalue().split())
        assert text.count("x") == 60 and "[red]" in text and "●" in text


def test_ctrl_c_ends_a_stream_cleanly(fake: FakeAgent, tmp_path: Path) -> None:
    fake.stall = True
    command = [
        sys.executable,
        "-m",
        "gradwire.server",
        "agent",
        "generate",
        "--prompt",
        "hi",
        "--address",
        fake.address,
    ]
    started = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
    )
    assert started.stdout is not None
    assert started.stdout.read(5) == "Hello"
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=20)
    assert (started.returncode, out) == (130, "\n")
    assert "interrupted; what came is kept" in err and "Traceback" not in err
    end = time.monotonic() + 5
    while not fake.cancelled and time.monotonic() < end:
        time.sleep(0.01)
    assert fake.cancelled == 1
    assert "new" in (tmp_path / "gradwire" / "agents.json").read_text()


def test_json_is_json_wherever_it_is_written() -> None:
    for encoding, written in [("utf-8", '"é"'), ("ascii", '"\\u00e9"'), ("latin-1", '"é"')]:
        assert json_line("é", io.TextIOWrapper(io.BytesIO(), encoding)) == written
    assert json.loads(json_line("\udc80", io.TextIOWrapper(io.BytesIO(), "utf-8"))) == "\udc80"


def test_a_chat_takes_no_unknown_command_for_a_message(
    cli: Cli, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = cli("run", stdin="/help\n/etc/hosts is what?\n/restart now\nhi\n")
    assert said[0] == 1 and "/new begins a new chat" in said[2] and "no /restart, and nothing was sent" in said[2]
    assert [r.prompt for r in fake.requests["GenerateReplyStream"]] == ["/etc/hosts is what?"]
    code, _, err = cli("run", "--json", stdin="/help\n")
    assert code == 1 and "/quit" in json.loads(err)["error"]["message"]
    # To a person it does not end the chat, and an older chat that goes on is said to.
    answers = iter(["/restart", "hi", "/quit"])
    monkeypatch.setattr("builtins.input", lambda _: next(answers))
    monkeypatch.setattr(io, "StringIO", Terminal)
    code, _, err = cli("run")
    assert code == 0 and "goes on with session new; /new" in err and "no /restart" in err
    assert sessions_of(fake) == [None, "new"]
    answers = iter(["/quit"])
    assert "goes on" not in cli("run", "--new-session")[2]


def test_a_command_speaks_of_commands(cli: Cli, fake: FakeAgent) -> None:
    fake.failures["GetStatus"].append(failure("INVALID_ARGUMENT", "deployment_id: is needed: there are a, b"))
    assert "with `gradwire agent run NAME --select`: there are a, b" in cli("generate", "--prompt", "hi")[2]
    fake.status = STATUS["rl"]
    for flags in ([], ["--json"]):
        err = cli("generate", "--prompt", "hi", *flags)[2]
        assert "`gradwire agent run` reads its observations" in err and "()" not in err
