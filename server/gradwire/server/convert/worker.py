"""The far side of a conversion: reads a checkpoint, which runs the code in it, and writes a bundle.

Started by `runner` with nothing but its standard input. Knows: which library reads what. Does not know: how a bundle is
checked. What it prints is for people; what counts is what it leaves in the output folder.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

from gradwire.server.convert.sandbox import cut_network


def main() -> None:
    """Converts what the request on standard input names; exit code 1 with the reason."""
    request = json.loads(sys.stdin.read())
    print("network: cut off" if cut_network() else "network: NOT cut off, as this system does not allow it", flush=True)
    sys.path[1:1] = request["import_paths"]
    try:
        convert(request)
    except Exception as error:
        reason = str(error) or type(error).__name__
        if isinstance(error, ModuleNotFoundError):
            reason = f"{error}; install it, or name an interpreter that has it with --python"
        print(f"\nconvert: {type(error).__name__}: {' '.join(reason.split())[:2000]}", flush=True)
        sys.exit(1)


def convert(request: dict[str, Any]) -> None:
    """Reads the source and writes the bundle and the samples."""
    source, algo = request["source"], request["algo"]
    framework = request["framework"] if request["framework"] != "auto" else _framework(source)
    if framework == "torch":
        from gradwire.server.convert import torch_module

        fields, graphs = torch_module.load(source, algo)
    elif framework == "stable_baselines3":
        from gradwire.server.convert import sb3

        fields, graphs = sb3.load(source, algo, request["vec_normalize"])
    else:
        from gradwire.server.convert import agilerl

        fields, graphs = agilerl.load(source, algo)
    from gradwire.server.convert.export import export

    output, samples = Path(request["output"]), Path(request["samples"])
    networks = {name: export(graph, output, samples, name) for name, graph in graphs.items()}
    for network in networks.values():
        network["check_bounds"] = request["check_bounds"]
    supervised = all(network["head"] is None for network in networks.values())
    manifest = {
        "format": "gradwire-policy",
        "version": 1,
        "kind": "supervised" if supervised else "rl_policy",
        **fields,
        "files": {network["file"]: _file(output / network["file"]) for network in networks.values()},
        "networks": networks,
    }
    (output / "manifest.json").write_text(json.dumps(manifest, indent=2))


def _framework(source: str) -> str:
    if ".py:" in source:
        return "torch"
    if source.endswith(".py"):
        raise ValueError(f"{source}: name the function that makes the module, as in {Path(source).name}:make")
    if not zipfile.is_zipfile(source):
        raise ValueError(f"{source} is neither a Stable-Baselines3 zip nor an AgileRL checkpoint")
    with zipfile.ZipFile(source) as archive:
        return "stable_baselines3" if "policy.pth" in archive.namelist() else "agilerl"


def _file(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
