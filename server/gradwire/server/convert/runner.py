"""The near side of a conversion: starts the worker, and trusts nothing that it hands back.

Knows: processes, limits, bundles. Does not know: torch or the libraries whose checkpoints are read.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gradwire.server.engines.policy.bundle import Bundle, read_bundle
from gradwire.server.engines.policy.manifest import BundleError
from gradwire.server.engines.policy.network import OnnxNetwork

SERVER_ROOT = Path(__file__).parents[3]
_MAX_FILE_BYTES = 4 * 2**30
_MAX_SAMPLE_BYTES = 2**30
# Float32 sums in another order: relative to the largest output of the batch.
TOLERANCE = 1e-4


class ConvertError(RuntimeError):
    """The source could not be converted; the text says why."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """What to convert."""

    source: str
    """A checkpoint, or FILE.py:FACTORY of a torch module."""
    framework: str = "auto"
    """stable_baselines3, agilerl, torch, or auto: by the source."""
    algo: str = ""
    """Name of the algorithm, where the checkpoint does not tell."""
    vec_normalize: str = ""
    """Stable-Baselines3's saved VecNormalize, whose statistics go into the bundle."""
    check_bounds: bool = True
    python: str = sys.executable
    """Interpreter that has torch, onnx and the source's library."""
    import_paths: tuple[str, ...] = ()
    """Folders with modules that the checkpoint needs."""
    timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Converted:
    """A bundle, and how far its outputs are from the source's."""

    bundle: Bundle
    max_difference: float
    """Largest difference of any network output on random observations, of the batch's largest output."""
    isolated: bool
    """The worker had no network."""


def require_sources(conversion: Conversion) -> None:
    """ConvertError when a file that the conversion reads is not there. Nothing is read yet."""
    _absolute(conversion.source)
    _absolute(conversion.vec_normalize)


def convert(conversion: Conversion) -> Converted:
    """Converts in a worker. ConvertError says what went wrong there, BundleError what is wrong with its result."""
    with tempfile.TemporaryDirectory(prefix="gradwire-convert-") as name:
        home = Path(name)
        output, samples = home / "bundle", home / "samples"
        for folder in (output, samples):
            folder.mkdir()
        request = {
            "source": _absolute(conversion.source),
            "framework": conversion.framework,
            "algo": conversion.algo,
            "vec_normalize": _absolute(conversion.vec_normalize),
            "check_bounds": conversion.check_bounds,
            "import_paths": [str(Path(path).resolve()) for path in conversion.import_paths],
            "output": str(output),
            "samples": str(samples),
        }
        said = _run_worker(conversion, home, json.dumps(request))
        bundle = read_bundle(output)
        return Converted(bundle, _compare(bundle, samples), "network: cut off" in said)


def _absolute(source: str) -> str:
    if not source:
        return ""
    file, colon, factory = source.partition(".py:")
    path = Path(file + ".py" if colon else source)
    if not path.is_file():
        raise ConvertError(f"{path} is not a file")
    return str(path.resolve()) + (":" + factory if colon else "")


def _run_worker(conversion: Conversion, home: Path, request: str) -> str:
    program = (
        f"import sys; sys.path.insert(0, {str(SERVER_ROOT)!r}); from gradwire.server.convert.worker import main; main()"
    )
    log = home / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [conversion.python, "-I", "-c", program],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=home,
            env=_environment(home),
            start_new_session=True,
        )
        _limit(process.pid, conversion.timeout_s)
        try:
            process.communicate(request.encode(), timeout=conversion.timeout_s)
        except subprocess.TimeoutExpired as error:
            raise ConvertError(f"the conversion took more than {conversion.timeout_s:g} s and was stopped") from error
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # whatever it started goes too
            process.wait()
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 20000))
        said = file.read().decode(errors="replace")
    if process.returncode != 0:
        raise ConvertError(_last_words(said) or f"the worker ended with code {process.returncode}")
    return said


def _environment(home: Path) -> dict[str, str]:
    """Nothing of ours: no tokens, proxies or paths to import from."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "disabled",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "MPLBACKEND": "agg",
    }


def _limit(pid: int, seconds: float) -> None:
    # From outside, as code between fork and exec is not safe where threads run. The worker waits for its request.
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (_MAX_FILE_BYTES, _MAX_FILE_BYTES))
        resource.prlimit(pid, resource.RLIMIT_CPU, (int(seconds) + 60, int(seconds) + 60))


def _last_words(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    told = [line.removeprefix("convert: ") for line in lines if line.startswith("convert: ")]
    return told[-1] if told else "\n".join(lines[-5:])


def _compare(bundle: Bundle, samples: Path) -> float:
    """Runs each network on what the worker ran the source on; the largest difference."""
    worst = 0.0
    for name, spec in bundle.manifest.networks.items():
        network = OnnxNetwork(name, spec, bundle.files[spec.file])
        path = samples / f"{name}.npz"
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _MAX_SAMPLE_BYTES:
            raise ConvertError(f"the worker left no samples to compare network {name} by")
        with np.load(path, allow_pickle=False) as recorded:
            wanted = {key.removeprefix("output:"): recorded[key] for key in recorded.files if key.startswith("output:")}
            feeds = {key: recorded["input:" + key].astype(dtype) for key, dtype in network.input_dtypes.items()}
        found = network.run(feeds)
        for key, array in found.items():
            if key not in wanted or wanted[key].shape != array.shape:
                raise BundleError(spec.file, f"networks.{name}.file", f"output {key} is not what the source gave")
            scale = max(1.0, float(np.abs(wanted[key]).max(initial=0.0)))
            difference = float(np.abs(array.astype(np.float64) - wanted[key]).max(initial=0.0)) / scale
            if not difference <= TOLERANCE:
                raise ConvertError(f"output {key} of network {name} differs from the source's by {difference:.2g}")
            worst = max(worst, difference)
    return worst
