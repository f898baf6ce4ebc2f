"""A bundle is untrusted: whatever is wrong with it is refused, with the file and the field, before it can do harm."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gradwire.server.engines.policy.bundle import read_bundle, write_bundle
from gradwire.server.engines.policy.engine import PolicyEngine, PolicyOptions
from gradwire.server.engines.policy.manifest import BundleError
from gradwire.server.errors import FailedPrecondition
from tests.engines.policy.support import box, discrete, graph, network, spec_of, write

SIMPLE = network(box(4), "categorical", discrete(3))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "bundle", {"policy": SIMPLE})


def refused(path: Path) -> str:
    """The error of loading it."""
    with pytest.raises(BundleError) as caught:
        PolicyEngine(read_bundle(path), PolicyOptions())
    return str(caught.value)


def with_graph(tmp_path: Path, data: bytes) -> str:
    return refused(write(tmp_path / "odd", {"policy": SIMPLE}, files={"policy.onnx": data}))


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def zipped(folder: Path, out: Path) -> zipfile.ZipFile:
    archive = zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED)
    for path in folder.iterdir():
        archive.write(path, path.name)
    return archive


def test_a_folder_and_its_zip_file_hold_the_same(folder: Path, tmp_path: Path) -> None:
    bundle = read_bundle(folder)
    write_bundle(tmp_path / "one.zip", bundle)
    write_bundle(tmp_path / "two", read_bundle(tmp_path / "one.zip"))
    assert read_bundle(tmp_path / "two") == bundle
    write_bundle(tmp_path / "again.zip", bundle)
    assert (tmp_path / "again.zip").read_bytes() == (tmp_path / "one.zip").read_bytes()
    with pytest.raises(FileExistsError):
        write_bundle(tmp_path / "one.zip", bundle)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.update(version=2), "manifest.json: version: is 2; this server reads version 1"),
        (lambda m: m.update(extra=1), "manifest.json: extra"),
        (lambda m: m.update(kind="llm"), "manifest.json: kind"),
        (lambda m: m["networks"]["policy"].update(head="gaussian"), "networks.policy.head"),
        (lambda m: m["networks"]["policy"].update(head="bernoulli"), "head bernoulli acts in a MultiBinary space"),
        (lambda m: m["networks"]["policy"].update(action_space=None), "a head needs an action_space"),
        (lambda m: m["networks"]["policy"].update(file="../policy.onnx"), "networks.policy.file"),
        (lambda m: m["networks"]["policy"].update(file="/etc/passwd"), "networks.policy.file"),
        (lambda m: m["networks"]["policy"].update(file="policy.pkl"), "networks.policy.file"),
        (lambda m: m["networks"]["policy"].update(file="other.onnx"), "files and networks differ"),
        (lambda m: m["networks"]["policy"]["observation_space"].update(shape=[2**20, 2**20]), "observation_space"),
        (lambda m: m["networks"]["policy"]["observation_space"].update(shape=[4, 2**40]), "observation_space"),
        (lambda m: m["networks"]["policy"]["observation_space"].update(shape=[0]), "observation_space"),
        (lambda m: m["networks"]["policy"]["observation_space"].update(low=[1.0]), "low has 1 numbers"),
        (lambda m: m["networks"]["policy"]["observation_space"].update(low=2.0, high=1.0), "low is above high"),
        (lambda m: m["networks"]["policy"]["observation_space"].update(dtype="object"), "observation_space"),
        (lambda m: m["networks"]["policy"].update(action_space=discrete(10**9)), "action_space"),
        (lambda m: m["networks"]["policy"].update(states={"h": {"shape": [2**30]}}), "states.h"),
        (lambda m: m["networks"]["policy"].update(states={"h": {"shape": [2], "initial": [1.0]}}), "initial has 1"),
        (
            lambda m: m["networks"]["policy"].update(states={f"h{i}": {"shape": [2**24]} for i in range(3)}),
            "observations and states have 50331652 elements",
        ),
        (lambda m: m["networks"]["policy"].update(normalization={"x": {"mean": [0.0], "variance": [1.0]}}), "x is not"),
        (lambda m: m.update(agents={"a": "policy", "b": "nobody"}), "agents and networks differ in nobody"),
        (lambda m: m["files"]["policy.onnx"].update(bytes=10), "policy.onnx: bytes"),
        (lambda m: m["files"]["policy.onnx"].update(bytes=2**35), "manifest.json: files"),
        (lambda m: m["files"]["policy.onnx"].update(sha256="0" * 64), "policy.onnx: sha256"),
    ],
)
def test_a_manifest_that_is_wrong_is_named(folder: Path, change: Callable[[dict[str, Any]], object], said: str) -> None:
    assert said in refused(edit(folder, change))


def test_a_manifest_that_is_no_json_or_says_a_thing_twice(folder: Path) -> None:
    for text in ("{", "[" * 100_000, '{"kind": "rl_policy", "kind": "supervised"}', "\x80"):
        (folder / "manifest.json").write_text(text)
        assert refused(folder).startswith("manifest.json")


def test_spaces_in_each_other_have_an_end(folder: Path) -> None:
    def nest(manifest: dict[str, Any]) -> None:
        space = box(1)
        for _ in range(9):
            space = {"type": "Tuple", "spaces": [space]}
        manifest["networks"]["policy"]["observation_space"] = space

    assert "more than 8 deep" in refused(edit(folder, nest))


def test_nothing_but_listed_regular_files(folder: Path, tmp_path: Path) -> None:
    extra = folder / "weights.pkl"
    extra.write_bytes(b"\x80\x04.")
    assert "weights.pkl: is not listed" in refused(folder)
    extra.unlink()
    (folder / "sub").mkdir()
    assert "sub: is no regular file" in refused(folder)
    (folder / "sub").rmdir()
    moved = tmp_path / "policy.onnx"
    (folder / "policy.onnx").rename(moved)
    assert "policy.onnx: is listed in the manifest but missing" in refused(folder)
    (folder / "policy.onnx").symlink_to(moved)
    assert "policy.onnx: is no regular file" in refused(folder)
    (folder / "policy.onnx").unlink()
    os.mkfifo(folder / "policy.onnx")
    assert "policy.onnx: is no regular file" in refused(folder)


def test_neither_a_folder_nor_a_zip(tmp_path: Path) -> None:
    assert "does not exist" in refused(tmp_path / "nothing")
    (tmp_path / "pickle").write_bytes(b"\x80\x04K\x01.")
    assert "neither a folder nor a zip file" in refused(tmp_path / "pickle")


def test_a_pipe_or_a_device_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name in ("pipe", "endless"):
        with pytest.raises(BundleError, match="is no regular file"):
            read_bundle(tmp_path / name)


def test_zip_entries_stay_inside(folder: Path, tmp_path: Path) -> None:
    for name in ("../evil.onnx", "/etc/evil.onnx", "sub/evil.onnx", "sub\\evil.onnx"):
        with zipped(folder, tmp_path / "b.zip") as archive:
            archive.writestr(name, b"x")
        assert "is no regular file directly in the bundle" in refused(tmp_path / "b.zip")
    with zipped(folder, tmp_path / "b.zip") as archive:
        link = zipfile.ZipInfo("link.onnx")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    assert "link.onnx: is no regular file" in refused(tmp_path / "b.zip")
    with pytest.warns(UserWarning, match="Duplicate"), zipped(folder, tmp_path / "b.zip") as archive:
        archive.writestr("policy.onnx", b"x")
    assert "stands twice" in refused(tmp_path / "b.zip")


def test_a_zip_bomb_is_not_unpacked(folder: Path, tmp_path: Path) -> None:
    (folder / "policy.onnx").write_bytes(bytes(200 * 2**20))
    edit(folder, lambda m: m["files"]["policy.onnx"].update(bytes=1000))
    zipped(folder, tmp_path / "bomb.zip").close()
    assert (tmp_path / "bomb.zip").stat().st_size < 2**20
    assert "policy.onnx: bytes: has more than 1000" in refused(tmp_path / "bomb.zip")
    (folder / "manifest.json").write_bytes(b" " * (17 * 2**20))
    zipped(folder, tmp_path / "bomb.zip").close()
    assert "manifest.json: bytes" in refused(tmp_path / "bomb.zip")


def test_a_damaged_zip(folder: Path, tmp_path: Path) -> None:
    zipped(folder, tmp_path / "b.zip").close()
    whole = (tmp_path / "b.zip").read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:60] + bytes(40) + whole[100:]):
        (tmp_path / "b.zip").write_bytes(damaged)
        refused(tmp_path / "b.zip")


def test_every_truncation_of_the_graph_is_refused(folder: Path, tmp_path: Path) -> None:
    whole = (folder / "policy.onnx").read_bytes()
    for number, size in enumerate(range(1, len(whole), max(1, len(whole) // 25))):
        with_graph(tmp_path / str(number), whole[:size])


def test_a_pickle_is_no_graph(tmp_path: Path) -> None:
    assert "policy.onnx" in with_graph(tmp_path, b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94.")


def changed(folder: Path, change: Callable[[Any], object]) -> bytes:
    model = onnx.load_from_string((folder / "policy.onnx").read_bytes())
    change(model)
    return bytes(model.SerializeToString())


def outside(model: Any) -> None:
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")


def inside_a_branch(model: Any) -> None:
    held = numpy_helper.from_array(np.ones(1, np.float32), "x")
    outside_graph = helper.make_graph([], "g", [], [], [held])
    outside_graph.initializer[0].external_data.add(key="location", value="../x")
    model.graph.node.append(helper.make_node("If", ["c"], ["d"], then_branch=outside_graph, else_branch=outside_graph))


def custom(model: Any) -> None:
    model.graph.node[0].domain = "evil.ops"


def huge(model: Any) -> None:
    del model.graph.initializer[0].dims[:]
    model.graph.initializer[0].dims.extend([2**31, 2**31])


def renamed_input(model: Any) -> None:
    model.graph.input[0].name = "x"
    model.graph.node[0].input[0] = "x"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (outside, "keeps tensors in another file"),
        (inside_a_branch, "keeps tensors in another file"),
        (custom, "uses operators of the domain b'evil.ops'"),
        (huge, "cannot be loaded"),
        (renamed_input, "asks for the inputs ['obs'], but the graph has ['x']"),
        (lambda m: setattr(m.graph.output[0], "name", "obs:flat"), "has no output logits"),
        (lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", TensorProto.STRING), "policy.onnx"),
        (lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[1], "dim_value", 5), "policy.onnx"),
        (lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", 1), "takes 1 rows only"),
    ],
)
def test_a_graph_that_is_not_what_the_manifest_says(
    folder: Path, tmp_path: Path, change: Callable[[Any], object], said: str
) -> None:
    assert said in with_graph(tmp_path, changed(folder, change))


def test_outputs_are_measured_not_believed(tmp_path: Path) -> None:
    bundle = read_bundle(write(tmp_path / "seven", {"policy": network(box(4), "categorical", discrete(7))}))
    said = with_graph(tmp_path, graph(spec_of(bundle.manifest)))
    assert "output logits has shape [1, 7] for 1 rows; it must be [batch, 3]" in said


def test_a_name_that_is_no_text(folder: Path, tmp_path: Path) -> None:
    data = (folder / "policy.onnx").read_bytes()
    assert b"logits" in data
    assert "policy.onnx" in with_graph(tmp_path, data.replace(b"logits", b"logit\xeb"))


def looping(count: str) -> bytes:
    """A graph that goes round `count` times: 2^62, or 2^62 times the first observation."""
    row, whole = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 4]), TensorProto.INT64
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Sin", ["x"], ["y"])],
        "body",
        [helper.make_tensor_value_info("i", whole, []), helper.make_tensor_value_info("go", TensorProto.BOOL, []), row],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 4]),
        ],
    )
    loop = helper.make_graph(
        [helper.make_node("ReduceMax", ["obs"], ["most"], keepdims=0),
         helper.make_node("Cast", ["most"], ["whole"], to=whole),
         helper.make_node("Mul", ["whole", "huge"], ["given"]),
         helper.make_node("Loop", [count, "true", "obs"], ["looped"], body=body),
         helper.make_node("MatMul", ["looped", "w"], ["logits"])],
        "loop",
        [helper.make_tensor_value_info("obs", TensorProto.FLOAT, ["b", 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["b", 3])],
        [numpy_helper.from_array(np.int64(2**62), "huge"), numpy_helper.from_array(np.bool_(True), "true"),
         numpy_helper.from_array(np.zeros((4, 3), np.float32), "w")],
    )  # fmt: skip
    model = helper.make_model(loop, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def test_a_graph_that_loops_for_ever_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradwire.server.engines.policy.network._MOST_SECONDS", 0.2)
    assert "was stopped after 0.2 s" in with_graph(tmp_path, looping("huge"))


async def test_a_graph_that_loops_for_ever_on_some_inputs_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradwire.server.engines.policy.network._MOST_SECONDS", 2.0)
    path = write(tmp_path / "odd", {"policy": SIMPLE}, files={"policy.onnx": looping("given")})
    engine = await PolicyEngine.load(path)
    assert (await engine.act(np.zeros(4, np.float32))).action is not None
    call = asyncio.create_task(engine.act(np.ones(4, np.float32)))
    began = time.monotonic()
    await asyncio.sleep(0.1)
    assert time.monotonic() - began < 1.5  # the event loop goes on
    with pytest.raises(FailedPrecondition, match=r"was stopped after 2 s"):
        await call
    await engine.close()
