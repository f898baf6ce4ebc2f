"""A loaded policy: what callers may send in each form, what they get, and what is wrong with what they may not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradwire.server.engines.policy.engine import PolicyEngine, PolicyOptions
from gradwire.server.errors import FailedPrecondition, InvalidArgument
from tests.engines.policy.support import box, discrete, graph, linear, network, spec_of, write

F32 = np.float32
IMAGE = box(8, 8, 3, low=0, high=255, dtype="uint8")
MIXED = {
    "type": "Dict",
    "spaces": {
        "position": box(2, low=-1.0, high=1.0),
        "camera": IMAGE,
        "rest": {"type": "Tuple", "spaces": [discrete(4, 10), {"type": "MultiDiscrete", "nvec": [2, 3]}]},
        "flags": {"type": "MultiBinary", "shape": [3]},
    },
}


@asynccontextmanager
async def serving(folder: Path, networks: dict[str, Any], **fields: Any) -> AsyncIterator[PolicyEngine]:
    engine = await PolicyEngine.load(write(folder / "bundle", networks, **fields))
    try:
        yield engine
    finally:
        await engine.close()


async def refused(call: Awaitable[Any]) -> str:
    with pytest.raises(InvalidArgument) as caught:
        await call
    return str(caught.value)


def mixed(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "position": rng.uniform(-1, 1, 2).astype(F32),
        "camera": rng.integers(0, 256, (8, 8, 3), np.uint8),
        "rest": (np.array(rng.integers(10, 14)), rng.integers(0, 2, 2)),
        "flags": rng.integers(0, 2, 3).astype(np.int8),
    }


def stacked(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, dict):
        return {key: stacked([value[key] for value in values]) for key in first}
    if isinstance(first, tuple):
        return tuple(stacked(list(parts)) for parts in zip(*values, strict=True))
    return np.stack(values)


async def test_dict_tuple_and_image_observations_one_and_many(tmp_path: Path) -> None:
    async with serving(tmp_path, {"policy": network(MIXED, "deterministic", box(5))}) as engine:
        rng = np.random.default_rng(0)
        observations = [mixed(rng) for _ in range(9)]
        batch = stacked(observations)
        flat = {
            "position": batch["position"],
            "camera": batch["camera"],
            "discrete": batch["rest"][0],
            "multi": batch["rest"][1],
            "flags": batch["flags"],
        }
        wanted = linear(spec_of(engine.manifest), flat)["action"]
        many: Any = await engine.act(batch, batched=True)
        np.testing.assert_allclose(many.action, wanted, rtol=1e-4, atol=1e-5)
        for observation, action in zip(observations, wanted, strict=True):
            one: Any = await engine.act(observation)
            np.testing.assert_allclose(one.action, action, rtol=1e-4, atol=1e-5)
        assert many.seconds > 0 and many.hidden_state is None


def put(*path: Any) -> Callable[[Any, Any], Any]:
    """Replaces what lies at the path of an observation."""

    def change(observation: Any, new: Any) -> Any:
        target = observation
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = new
        return observation

    return change


@pytest.mark.parametrize(
    ("path", "new", "said"),
    [
        (("position",), np.array([0.0, np.nan], F32), "observation.position: holds NaN"),
        (("position",), np.array([0.0, np.inf], F32), "observation.position: holds NaN or infinity"),
        (
            ("position",),
            np.array([0.0, 1.5], F32),
            "observation.position: is 1.5 at [0, 1] of the batch; it must be in",
        ),
        (("position",), np.zeros(3, F32), "observation.position: has shape [3]; it must be [2]"),
        (("position",), np.zeros((1, 2), F32), "set batched if the first dimension is a batch"),
        (("position",), np.zeros(2, np.bool_), "observation.position: is of dtype bool"),
        (("position",), np.array(["a", "b"]), "observation.position: is of dtype <U1; it must hold numbers"),
        (("position",), np.array([None, 1], object), "observation.position: is of dtype object"),
        (("position",), {"x": np.zeros(2)}, "observation.position: must be one array"),
        (("position",), None, "observation.position: must be one array"),
        (("camera",), np.zeros((8, 8, 3), F32), "observation.camera: is of dtype float32; the space is of uint8"),
        (("camera",), np.full((8, 8, 3), 256), "observation.camera: is 256"),
        (("rest",), (np.array(9), np.zeros(2, int)), "observation.rest[0]: is 9"),
        (("rest",), (np.array(10.0), np.zeros(2, int)), "observation.rest[0]: is of dtype float64"),
        (("rest",), (np.array(10), np.array([1, 3])), "observation.rest[1]: is 3 at [0, 1]"),
        (("rest",), (np.array(10),), "observation.rest: must be a list of 2 items"),
        (("rest",), np.array(10), "observation.rest: must be a list of 2 items"),
        (("flags",), np.array([0, 1, 2]), "observation.flags: is 2"),
        (("extra",), np.zeros(1), "observation.extra: is not in the space, which has position, camera"),
    ],
)
async def test_bad_observations_are_named(tmp_path: Path, path: tuple[Any, ...], new: Any, said: str) -> None:
    async with serving(tmp_path, {"policy": network(MIXED, "q_values", discrete(5))}) as engine:
        good = mixed(np.random.default_rng(0))
        assert said in await refused(engine.act(put(*path)(good, new)))


async def test_batches_have_one_size(tmp_path: Path) -> None:
    async with serving(tmp_path, {"policy": network(MIXED, "q_values", discrete(5))}) as engine:
        batch = stacked([mixed(np.random.default_rng(i)) for i in range(3)])
        short = {**batch, "flags": batch["flags"][:2]}
        assert "observation.flags: has shape [2, 3]; it must be [3, 3]" in await refused(
            engine.act(short, batched=True)
        )
        empty = {**batch, "position": batch["position"][:0]}
        assert "observation.position: is batched" in await refused(engine.act(empty, batched=True))
        without = {key: value for key, value in batch.items() if key != "camera"}
        assert "observation: has no 'camera'" in await refused(engine.act(without, batched=True))
        assert "ask for actions" in await refused(engine.predict(batch, batched=True))
    options = PolicyOptions(max_request_rows=2)
    engine = await PolicyEngine.load(tmp_path / "bundle", options)
    assert "has 3 rows; one request takes 2" in await refused(engine.act(batch, batched=True))
    await engine.close()


async def test_numbers_that_the_network_cannot_hold(tmp_path: Path) -> None:
    async with serving(tmp_path, {"policy": network(box(1), "q_values", discrete(2))}) as engine:
        assert (await engine.act(np.array([1.0]))).action == (await engine.act(np.array([1.0], F32))).action
        assert "float32, which the network takes, cannot hold" in await refused(engine.act(np.array([1e200])))


async def test_bounds_can_be_left_unchecked(tmp_path: Path) -> None:
    spec = network(box(1, low=0.0, high=1.0), "q_values", discrete(2), check_bounds=False)
    async with serving(tmp_path, {"policy": spec}) as engine:
        await engine.act(np.array([7.0], F32))
        assert "holds NaN" in await refused(engine.act(np.array([np.nan], F32)))


async def test_normalisation_comes_before_the_network(tmp_path: Path) -> None:
    rule = {"mean": [1.0, 2.0], "variance": [4.0, 0.0], "epsilon": 1e-4, "clip": 3.0}
    spec = network(box(2), "deterministic", box(2), normalization={"obs": rule})
    async with serving(tmp_path, {"policy": spec}) as engine:
        given = np.array([[2.0, 2.001], [5.0, 9.0]], F32)
        scaled = np.clip((given - [1, 2]) / np.sqrt(np.array([4.0, 0.0]) + 1e-4), -3, 3)
        wanted = linear(spec_of(engine.manifest), {"obs": scaled})["action"]
        found: Any = await engine.act(given, batched=True)
        np.testing.assert_allclose(found.action, wanted, rtol=1e-5)


MASKS = [
    ("categorical", discrete(3), [0, 0, 1], [0, 0, 0], 2),
    ("q_values", discrete(3, 5), [0, 1, 0], [0, 0, 0], 6),
    ("multi_categorical", {"type": "MultiDiscrete", "nvec": [2, 3]}, [1, 0, 0, 0, 1], [1, 0, 0, 0, 0], [0, 2]),
]


@pytest.mark.parametrize(("head", "space", "mask", "nothing", "only"), MASKS)
async def test_masks_leave_what_they_allow(
    tmp_path: Path, head: str, space: dict[str, Any], mask: list[int], nothing: list[int], only: Any
) -> None:
    async with serving(tmp_path, {"policy": network(box(2), head, space)}) as engine:
        observation = np.ones((4, 2), F32)
        batch = np.tile(mask, (4, 1))
        for deterministic in (True, False):
            found = await engine.act(observation, batched=True, action_mask=batch, deterministic=deterministic)
            assert np.asarray(found.action).tolist() == [only] * 4
        assert np.asarray((await engine.act(observation[0], action_mask=np.array(mask))).action).tolist() == only
        batch[2] = nothing
        said = await refused(engine.act(observation, batched=True, action_mask=batch))
        assert "action_mask: allows nothing for" in said and "in row 2" in said
        assert "action_mask: must hold 1" in await refused(engine.act(observation[0], action_mask=np.array(mask) * 2))
        assert "action_mask: has shape" in await refused(engine.act(observation[0], action_mask=np.ones(9)))


async def test_a_mask_keeps_bits_at_zero_and_a_box_has_none(tmp_path: Path) -> None:
    async with serving(tmp_path / "a", {"p": network(box(2), "bernoulli", {"type": "MultiBinary", "shape": [4]})}) as e:
        assert e.supports_action_mask
        found = await e.act(np.ones((50, 2), F32), batched=True, action_mask=np.tile([1, 0, 1, 0], (50, 1)))
        bits = np.asarray(found.action)
        assert bits[:, [1, 3]].max() == 0 and bits.max() == 1
    async with serving(tmp_path / "b", {"p": network(box(2), "deterministic", box(1))}) as e:
        assert not e.supports_action_mask
        assert "action_mask: cannot be given" in await refused(e.act(np.ones(2, F32), action_mask=np.ones(1)))


async def test_samples_repeat_with_their_seed_only(tmp_path: Path) -> None:
    async with serving(tmp_path, {"policy": network(box(2), "clipped_gaussian", box(3))}) as engine:
        observation = np.ones((5, 2), F32)

        async def sample(**more: Any) -> Any:
            return (await engine.act(observation, batched=True, **more)).action

        first = await sample(seed=1)
        np.testing.assert_array_equal(await sample(seed=1), first)
        assert (await sample(seed=2) != first).all() and (await sample() != await sample()).all()
        assert (first[0] != first[1]).all(), "each row is drawn for itself"
        np.testing.assert_array_equal(await sample(seed=-1), await sample(seed=-1))
        likely = await sample(deterministic=True)
        np.testing.assert_array_equal(likely, await sample(deterministic=True, seed=5))
        assert (likely == likely[0]).all()


async def test_what_is_not_said_is_as_the_manifest_says(tmp_path: Path) -> None:
    spec = {"policy": network(box(1), "clipped_gaussian", box(1))}
    async with serving(tmp_path, spec, deterministic=True) as engine:
        observation = np.ones(1, F32)
        assert (await engine.act(observation)).action == (await engine.act(observation)).action
        sampled = [await engine.act(observation, deterministic=False) for _ in range(2)]
        assert sampled[0].action != sampled[1].action


RECURRENT = network(
    box(2), "deterministic", box(1), states={"h": {"shape": [2, 3], "initial": 0.5}, "c": {"shape": [1]}}
)


async def test_hidden_state_goes_round(tmp_path: Path) -> None:
    async with serving(tmp_path, {"policy": RECURRENT}) as engine:
        assert engine.recurrent
        spec = spec_of(engine.manifest)
        rng = np.random.default_rng(0)
        state: Any = None
        expected = {"h": np.full((4, 2, 3), 0.5, F32), "c": np.zeros((4, 1), F32)}
        for _ in range(4):
            observation = rng.normal(size=(4, 2)).astype(F32)
            wanted = linear(spec, {"obs": observation, "h": expected["h"], "c": expected["c"]})
            found: Any = await engine.act(observation, batched=True, hidden_state=state)
            np.testing.assert_allclose(found.action, wanted["action"], rtol=1e-4, atol=1e-5)
            expected = {key: wanted[f"next_state.{key}"] for key in expected}
            state = found.hidden_state
            np.testing.assert_allclose(state["h"], expected["h"], rtol=1e-4, atol=1e-5)
        one = await engine.act(observation[0], hidden_state={key: value[0] for key, value in state.items()})
        assert isinstance(one.hidden_state, dict) and one.hidden_state["h"].shape == (2, 3)


async def test_bad_hidden_states_are_named(tmp_path: Path) -> None:
    async with serving(tmp_path / "a", {"policy": RECURRENT}) as engine:
        observation, h, c = np.zeros(2, F32), np.zeros((2, 3), F32), np.zeros(1, F32)

        def act(hidden_state: Any) -> Awaitable[Any]:
            return engine.act(observation, hidden_state=hidden_state)

        assert "hidden_state: must be a map with the keys h, c" in await refused(act({"h": h}))
        assert "hidden_state: must be a map" in await refused(act(h))
        assert "hidden_state.h: has shape [3]" in await refused(act({"h": h[0], "c": c}))
        assert "hidden_state.c: holds NaN" in await refused(act({"h": h, "c": c * np.nan}))
    async with serving(tmp_path / "b", {"policy": network(box(2), "deterministic", box(1))}) as engine:
        assert "hidden_state: was given" in await refused(engine.act(observation, hidden_state={"h": h}))


AGENTS = {"cat": "felines", "lion": "felines", "dog": "canines"}
TEAM = {"felines": network(box(2), "categorical", discrete(3)), "canines": network(MIXED, "clipped_gaussian", box(2))}


async def test_agents_act_with_their_networks_masks_and_orders(tmp_path: Path) -> None:
    async with serving(tmp_path, TEAM, agents=AGENTS) as engine:
        assert engine.agent_ids == ("cat", "lion", "dog")
        rng = np.random.default_rng(1)
        seen: Any = {"cat": np.ones(2, F32), "lion": -np.ones(2, F32), "dog": mixed(rng)}
        free: Any = (await engine.act(seen, deterministic=True)).action
        assert set(free) == set(AGENTS)
        logits = linear(spec_of(engine.manifest, "felines"), {"obs": np.stack([seen["cat"], seen["lion"]])})["logits"]
        assert [free["cat"], free["lion"]] == logits.argmax(axis=1).tolist()
        mask = np.ones(3)
        mask[free["cat"]] = 0
        masked: Any = (await engine.act(seen, deterministic=True, action_mask={"cat": mask})).action
        assert masked["cat"] != free["cat"] and masked["lion"] == free["lion"]
        told: Any = (
            await engine.act(
                seen,
                deterministic=True,
                env_defined_actions={"dog": np.array([np.nan, 9.0]), "lion": np.array(2), "cat": np.array(np.nan)},
            )
        ).action
        assert told["lion"] == 2 and told["lion"].dtype == np.int64 and told["cat"] == free["cat"]
        np.testing.assert_array_equal(told["dog"], [free["dog"][0], 9.0])
        alone: Any = (await engine.act({"dog": seen["dog"]}, seed=3)).action
        together: Any = (await engine.act(seen, seed=3)).action
        np.testing.assert_array_equal(alone["dog"], together["dog"])


async def test_bad_multi_agent_requests_are_named(tmp_path: Path) -> None:
    async with serving(tmp_path / "a", TEAM, agents=AGENTS) as engine:
        seen: Any = {"cat": np.ones(2, F32), "lion": np.ones(2, F32)}
        assert "observation: must be a map by agent id" in await refused(engine.act(np.ones(2, F32)))
        assert "observation: must be a map by agent id" in await refused(engine.act({}))
        assert "observation.cow: is no agent" in await refused(engine.act({**seen, "cow": np.ones(2)}))
        assert "observation.lion: has shape [3]" in await refused(engine.act({**seen, "lion": np.ones(3)}))
        assert "action_mask: must be a map by agent id" in await refused(engine.act(seen, action_mask=np.ones(3)))
        dog = {"dog": np.zeros(2)}
        assert "env_defined_actions.dog: is not among" in await refused(engine.act(seen, env_defined_actions=dog))
        nothing = {"lion": np.zeros(3)}
        assert "action_mask.lion: allows nothing" in await refused(engine.act(seen, action_mask=nothing))
        half, far = {"cat": np.array(0.5)}, {"cat": np.array(3)}
        assert "env_defined_actions.cat: holds fractions" in await refused(engine.act(seen, env_defined_actions=half))
        assert "env_defined_actions.cat: is 3" in await refused(engine.act(seen, env_defined_actions=far))
    async with serving(tmp_path / "b", TEAM, agents=AGENTS, require_all_agents=True) as engine:
        assert "observation: has no 'dog'; the policy needs all" in await refused(engine.act(seen))


async def test_supervised_models_predict(tmp_path: Path) -> None:
    async with serving(tmp_path / "one", {"model": network(box(2), None, None, outputs=["y"])}) as engine:
        inputs = np.arange(6, dtype=F32).reshape(3, 2)
        wanted = linear(spec_of(engine.manifest, "model"), {"obs": inputs})["y"]
        found: Any = await engine.predict(inputs, batched=True)
        np.testing.assert_allclose(found.outputs, wanted, rtol=1e-5)
        assert found.batch_size == 3 and found.seconds > 0
        one: Any = await engine.predict(inputs[1])
        np.testing.assert_allclose(one.outputs, wanted[1], rtol=1e-5)
        assert "inputs: has shape [3]" in await refused(engine.predict(inputs[:, 0]))
        assert "ask for predictions" in await refused(engine.act(inputs, batched=True))
        assert engine.action_space is None
    async with serving(tmp_path / "two", {"model": network(box(2), None, None, outputs=["y", "z"])}) as engine:
        several: Any = (await engine.predict(inputs, batched=True)).outputs
        assert set(several) == {"y", "z"} and several["z"].shape == (3, 3)


async def test_spaces_are_told(tmp_path: Path) -> None:
    async with serving(tmp_path / "one", {"policy": network(MIXED, "q_values", discrete(5))}) as engine:
        assert engine.observation_space["spaces"]["rest"]["spaces"][0]["start"] == 10
        assert engine.action_space == {"type": "Discrete", "n": 5, "start": 0, "shape": []}
    async with serving(tmp_path / "team", TEAM, agents=AGENTS) as engine:
        assert list(engine.observation_space["spaces"]) == ["cat", "lion", "dog"]


async def test_nan_from_broken_weights_is_no_action(tmp_path: Path) -> None:
    spec = network(box(1), "deterministic", box(1))
    bundle = await PolicyEngine.load(write(tmp_path / "good", {"policy": spec}))
    data = graph(spec_of(bundle.manifest))
    await bundle.close()
    import onnx

    model = onnx.load_from_string(data)
    bias = next(tensor for tensor in model.graph.initializer if tensor.name == "action:b")
    bias.raw_data = np.array([np.nan], F32).tobytes()
    folder = write(tmp_path / "bad", {"policy": spec}, files={"policy.onnx": model.SerializeToString()})
    engine = await PolicyEngine.load(folder)
    with pytest.raises(FailedPrecondition, match="output action is NaN"):
        await engine.act(np.zeros(1, F32))
    await engine.close()
