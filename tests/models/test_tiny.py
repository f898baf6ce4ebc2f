"""The tiny models: the same bytes everywhere, every string round-trips, and transformers reads them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from gradwire.server.models import resolve_model, tiny

SHA256 = {
    "tiny": "69a5379f80f2c0af51014f33855ae50d11b3bdf83a6f6fcf79d44eff22491a67",
    "tiny-untied": "30014a7e964fb938cc17e01b5c29eab0f0b96068b5b4a1462d24f12ae1970120",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny.build(folder, tied=True)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return pytest.importorskip("transformers").AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("name", SHA256)
def test_weights_are_the_same_bytes_on_every_machine(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADWIRE_CACHE", str(tmp_path))
    weights = (resolve_model(name) / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == SHA256[name], "raise the revision in catalog.py too"


def test_every_file_is_the_same_when_built_again(folder: Path, tmp_path: Path) -> None:
    tiny.build(tmp_path, tied=True)
    assert {f.name: f.read_bytes() for f in tmp_path.iterdir()} == {f.name: f.read_bytes() for f in folder.iterdir()}


def test_about_a_million_parameters_in_fp32(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    assert {str(t.dtype) for t in tensors.values()} == {"float32"}
    assert 0.9e6 < sum(t.size for t in tensors.values()) < 1.1e6
    assert "lm_head.weight" not in tensors


def test_untied_has_a_head_of_its_own(tmp_path: Path) -> None:
    tiny.build(tmp_path, tied=False)
    tensors = load_file(tmp_path / "model.safetensors")
    assert tensors["lm_head.weight"].shape == tensors["model.embed_tokens.weight"].shape
    assert (tensors["lm_head.weight"] != tensors["model.embed_tokens.weight"]).any()
    assert json.loads((tmp_path / "config.json").read_text())["tie_word_embeddings"] is False


@given(text=st.text())
def test_any_text_round_trips(tokenizer: Any, text: str) -> None:
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize(
    "text", ["", " a  b \n\t", "naïve — 漢字 🙂‍↔️", "a , b ?", "\x00\x7f\ufffd", "<|im_end|>x<|pad|>"]
)
def test_awkward_texts_round_trip(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_a_token_is_a_byte_and_its_id_the_bytes_value(tokenizer: Any) -> None:
    text = "".join(map(chr, range(0x20, 0x7F))) + "é漢🙂"
    assert tokenizer(text).input_ids == list(text.encode())


def test_special_tokens_are_one_token_each(tokenizer: Any) -> None:
    for token_id, text in tiny.SPECIAL_TOKENS.items():
        assert tokenizer(text).input_ids == [token_id]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (tiny.BOS, tiny.IM_END, tiny.PAD)
    assert len(tokenizer) == tiny.VOCAB


def test_special_tokens_can_be_left_out_of_the_text(tokenizer: Any) -> None:
    assert tokenizer.decode([*b"ok", tiny.IM_END], skip_special_tokens=True) == "ok"


def test_chat_template(tokenizer: Any) -> None:
    conversation = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    text = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
    assert tokenizer.apply_chat_template(conversation, tokenize=False) == text
    prompt = tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
    assert prompt == text + "<|im_start|>assistant\n"


def test_transformers_loads_it_and_its_greedy_text_is_not_degenerate(folder: Path, tokenizer: Any) -> None:
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.float32
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    prompt = torch.tensor([list(b"Hello, world")])
    with torch.no_grad():
        output = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=64, do_sample=False, pad_token_id=tiny.PAD
        )[0, prompt.shape[1] :]
        log_probs = model(prompt).logits[0].log_softmax(-1)
    text = tokenizer.decode(output)
    assert len(set(text)) > 16, text
    assert text.isascii() and text.isprintable()
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    assert 1.5 < entropy.mean() < 4.5, "neither certain nor uniform (uniform is 5.6 nats)"
