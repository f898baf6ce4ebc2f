"""The engine's constructor, its servers, and engines that come from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gradwire.client.agentic import BaseEngineWrapper, EngineLoadError, load_engine, load_engine_class
from tests.agentic.engines import TOKENIZER, Engine

METHODS = """
    def initialize(self):
        self.ready = (self.server_addresses, len(self.completions))
    def generate_agent_trajectories_async(self, tasks):
        return []
"""
HEAD = "from gradwire.client.agentic import BaseEngineWrapper\n"


def made(**changes: Any) -> BaseEngineWrapper:
    return Engine(lambda tasks: [], **changes)


def test_defaults_are_the_documented_ones() -> None:
    engine = made()
    assert (engine.agent_name, engine.tokenizer) == ("tested", TOKENIZER)
    assert (engine.max_prompt_length, engine.max_response_length) == (131072, 8192)
    assert (engine.n_parallel_agents, engine.max_steps, engine.sampling_params) == (8, 5, {})
    assert engine.completions is None and engine.server_addresses is None


def test_the_callers_parameters_stay_the_callers() -> None:
    given = {"temperature": 1.0}
    engine = made(sampling_params=given)
    engine.sampling_params["top_k"] = 1
    assert given == {"temperature": 1.0}


@pytest.mark.parametrize(
    ("name", "wrong", "right", "text"),
    [
        ("max_prompt_length", [0, 131073, 1.0, True, "8", None], [1, 131072], "between [1, 128K]"),
        ("max_response_length", [0, 8193, False], [1, 8192], "between [1, 8K]"),
        ("n_parallel_agents", [0, 65, 8.0], [1, 64], "between [1, 64]"),
        ("max_steps", [0, 11, True], [1, 10], "between [1, 10]"),
        ("sampling_params", [[], {1: 2}, "a"], [None, {}, {"a": 1}], "a dictionary or None and all keys must be str"),
    ],
)
def test_ranges_are_the_documented_ones(name: str, wrong: list[Any], right: list[Any], text: str) -> None:
    for value in right:
        made(**{name: value})
    for value in wrong:
        with pytest.raises(ValueError, match=f"The parameter '{name}' of function '__init__' is invalid") as caught:
            made(**{name: value})
        assert text in str(caught.value)


@pytest.mark.parametrize("name", ["", "1a", "a-b", "a b", "é", "a\n", None, 1])
def test_a_name_is_of_letters_digits_and_underscores(name: Any) -> None:
    with pytest.raises(ValueError, match="agent_name must be a non-empty valid Python identifier"):
        load(name)
    load("a_1")


def load(name: Any = "a", tokenizer: Any = TOKENIZER) -> None:
    class Other(BaseEngineWrapper):
        def initialize(self) -> None: ...

        def generate_agent_trajectories_async(self, tasks: list[dict[str, Any]]) -> list[Any]:
            return tasks

    assert Other(name, tokenizer).generate_agent_trajectories_async() == []  # type: ignore[call-arg]


def test_a_tokenizer_is_transformers_own() -> None:
    with pytest.raises(ValueError, match="tokenizer must be provided"):
        load(tokenizer=None)
    with pytest.raises(TypeError, match="Expected a PreTrainedTokenizer or PreTrainedTokenizerFast, got str"):
        load(tokenizer="gpt2")


def test_a_class_may_raise_the_two_limits_that_published_engines_exceed() -> None:
    class Long(Engine):
        max_steps_limit = 100
        max_response_length_limit = 64 * 1024

    engine = Long(lambda tasks: [], max_steps=100, max_response_length=65536)
    assert (engine.max_steps, engine.max_response_length) == (100, 65536)
    with pytest.raises(ValueError, match="between \\[1, 64K\\]"):
        Long(lambda tasks: [], max_response_length=65537)


def test_an_engine_defines_both_methods() -> None:
    with pytest.raises(TypeError, match="abstract"):
        BaseEngineWrapper("a", TOKENIZER)  # type: ignore[abstract]


def test_servers_are_addresses_with_ports() -> None:
    engine = made()
    engine.connect(["127.0.0.1:8000", "http://[::1]:80/", "localhost:1/jobs/3"])
    assert engine.server_addresses == ["127.0.0.1:8000", "[::1]:80", "localhost:1/jobs/3"]
    assert engine.completions is not None
    assert [completions.url for completions in engine.completions] == [
        "http://127.0.0.1:8000/v1/completions",
        "http://[::1]:80/v1/completions",
        "http://localhost:1/jobs/3/v1/completions",
    ]
    assert len({*engine.completions}) == 3  # routers keep them in dictionaries
    wrong: Any
    for wrong in ("127.0.0.1:1", [], ["127.0.0.1"], ["h:70000"], ["https://h:1"], ["h:1?x"], ["a b:1"], [None]):
        with pytest.raises(ValueError, match="server_addresses"):
            engine.connect(wrong)
    assert len(engine.server_addresses) == 3


def test_a_token_goes_to_this_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADWIRE_TOKEN", "from the environment")
    engine = made()
    engine.connect(["localhost:1/jobs/3"])
    assert engine.token == "from the environment"
    engine.connect(["127.0.0.1:1"], token="given")
    assert engine.token == "given"
    with pytest.raises(ValueError, match="server_addresses: a token would travel to gpu-1:80/jobs/3"):
        engine.connect(["127.0.0.1:1", "gpu-1:80/jobs/3"])
    monkeypatch.delenv("GRADWIRE_TOKEN")
    engine.connect(["gpu-1:80"])
    assert engine.token is None


def written(folder: Path, text: str) -> Path:
    path = folder / "engine.py"
    path.write_text(text)
    return path


def test_an_engine_comes_from_its_file_ready(tmp_path: Path) -> None:
    (tmp_path / "its_sibling_module.py").write_text(f"{HEAD}class Base(BaseEngineWrapper):\n    pass\n")
    path = written(tmp_path, f"{HEAD}from its_sibling_module import Base\nclass Mine(Base):{METHODS}\nAgain = Mine\n")
    engine: Any = load_engine(path, ["127.0.0.1:1"], agent_name="a", tokenizer=TOKENIZER, max_steps=2)
    assert engine.ready == (["127.0.0.1:1"], 1)
    assert (type(engine).__name__, engine.max_steps) == ("Mine", 2)
    assert load_engine_class(str(path)) is type(engine)
    written(tmp_path, f"{HEAD}class Changed(BaseEngineWrapper):{METHODS}")
    assert load_engine_class(path).__name__ == "Changed"


def test_one_of_several_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, f"{HEAD}class A(BaseEngineWrapper):{METHODS}\nclass B(A):\n    pass\n")
    assert load_engine_class(path, "B").__name__ == "B"
    with pytest.raises(EngineLoadError, match=r"several engines \(A, B\)"):
        load_engine_class(path)
    with pytest.raises(EngineLoadError, match="no engine 'C'; engines in it: A, B"):
        load_engine_class(path, "C")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", "no class in it derives"),
        (HEAD, "no class in it derives"),
        (
            f"{HEAD}class A(BaseEngineWrapper):\n    pass\n",
            "A does not define generate_agent_trajectories_async",
        ),
        ("x = 1\nimport no_such_module_at_all\n", "line 2: ModuleNotFoundError: No module named"),
        ("x = 1\n\ndef f(:\n", "line 3: SyntaxError"),
        ("def f():\n    raise SystemExit(3)\nf()\n", "line 2: SystemExit: 3"),
    ],
)
def test_a_file_that_gives_no_engine_says_why(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(EngineLoadError) as caught:
        load_engine_class(path)
    assert said in str(caught.value) and str(path) in str(caught.value)


def test_a_file_that_was_interrupted_is_loaded_anew(tmp_path: Path) -> None:
    text = f"{HEAD}import pathlib\nflag = pathlib.Path(__file__).with_suffix('.again')\nif not flag.exists():\n"
    text += f"    flag.touch()\n    raise KeyboardInterrupt\nclass Mine(BaseEngineWrapper):{METHODS}"
    path = written(tmp_path, text)
    with pytest.raises(KeyboardInterrupt):
        load_engine_class(path)
    assert load_engine_class(path).__name__ == "Mine"


def test_what_is_no_file_says_so(tmp_path: Path) -> None:
    for path, said in ((tmp_path / "none.py", "no such file"), (tmp_path, "no file"), (tmp_path / "a.txt", "NAME.py")):
        if path.suffix == ".txt":
            path.touch()
        with pytest.raises(EngineLoadError, match=said):
            load_engine_class(path)
