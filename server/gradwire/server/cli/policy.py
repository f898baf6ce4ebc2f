"""`gradwire policy convert SOURCE OUT | inspect BUNDLE | check BUNDLE`: bundles of policies and supervised models.

Knows: printing. Does not know: how bundles are read (engines.policy) or made (convert).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradwire.server.cli import missing_package
from gradwire.server.cli.usage import add_json, fail
from gradwire.server.engines.policy.bundle import Bundle, read_bundle, write_bundle
from gradwire.server.engines.policy.manifest import BundleError

if TYPE_CHECKING:
    from gradwire.server.convert.runner import Converted

_WARNING = (
    "warning: reading a checkpoint runs the code in it, as you. Convert only what you trust.\n"
    "         (It runs in a process of its own, without your environment.)"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `convert`, `inspect` and `check`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    convert = actions.add_parser("convert", help="make a bundle from a checkpoint; runs the checkpoint's code")
    convert.add_argument("source", help="a Stable-Baselines3 zip, an AgileRL checkpoint, or FILE.py:FACTORY")
    convert.add_argument("out", type=Path, help="the bundle: a new folder, or a new file that ends in .zip")
    convert.add_argument(
        "--from",
        dest="framework",
        default="auto",
        choices=("auto", "stable_baselines3", "agilerl", "torch"),
        help="what saved the source (default: found out)",
    )
    convert.add_argument("--algo", default="", help="the algorithm, where the checkpoint does not tell")
    convert.add_argument("--vec-normalize", default="", metavar="FILE", help="VecNormalize statistics to put in")
    convert.add_argument("--no-check-bounds", action="store_true", help="serve observations outside of their boxes too")
    convert.add_argument("--python", default=sys.executable, help="an interpreter that has the source's library")
    convert.add_argument(
        "--import-path", action="append", default=[], metavar="DIR", help="modules that the source needs"
    )
    convert.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS", help="default: 600")
    add_json(convert)
    for name, summary in (("inspect", "print a bundle's manifest"), ("check", "load a bundle as the server would")):
        action = actions.add_parser(name, help=summary)
        action.add_argument("bundle", type=Path, help="a folder or a zip file")
        add_json(action)


def run(args: argparse.Namespace) -> int:
    """Exit code 0, or 1 with the reason on standard error."""
    try:
        if args.action == "convert":
            return _convert(args)
        bundle = read_bundle(args.bundle)
        if args.action == "inspect":
            _inspect(bundle, args.json)
            return 0
        return _check(bundle, args.json)
    except BrokenPipeError:
        raise
    except (BundleError, OSError) as error:
        return fail("policy", error, for_programs=args.json)
    except ModuleNotFoundError as error:
        return missing_package("policy", error, for_programs=args.json)


def _convert(args: argparse.Namespace) -> int:
    from gradwire.server.convert.runner import Conversion, ConvertError, convert, require_sources

    if args.out.exists():
        raise FileExistsError(f"{args.out} exists already")
    conversion = Conversion(
        source=args.source,
        framework=args.framework,
        algo=args.algo,
        vec_normalize=args.vec_normalize,
        check_bounds=not args.no_check_bounds,
        python=args.python,
        import_paths=tuple(args.import_path),
        timeout_s=args.timeout,
    )
    try:
        require_sources(conversion)
        if not args.json:
            print(_WARNING, file=sys.stderr)
        converted = convert(conversion)
    except ConvertError as error:
        return fail("policy", error, for_programs=args.json)
    write_bundle(args.out, converted.bundle)
    if args.json:
        print(json.dumps(_converted_row(args.out, converted)))
        return 0
    if not converted.isolated:
        print("warning: this system did not let the conversion run without a network", file=sys.stderr)
    manifest = converted.bundle.manifest
    print(f"{args.out}: {manifest.algo or manifest.kind}, {len(manifest.networks)} network(s)")
    print(f"largest difference from the source: {converted.max_difference:.1e}")
    return 0


def _converted_row(out: Path, converted: Converted) -> dict[str, Any]:
    """A conversion as JSON. `isolated`: it ran without a network."""
    manifest = converted.bundle.manifest
    return {
        "bundle": str(out),
        "kind": manifest.kind,
        "algo": manifest.algo,
        "networks": list(manifest.networks),
        "max_difference": converted.max_difference,
        "isolated": converted.isolated,
    }


def _inspect(bundle: Bundle, as_json: bool) -> None:
    manifest = bundle.manifest
    print(json.dumps(manifest.model_dump(mode="json")) if as_json else manifest.model_dump_json(indent=2))


def _check(bundle: Bundle, as_json: bool) -> int:
    from gradwire.server.engines.policy.network import OnnxNetwork

    rows = []
    for name, spec in bundle.manifest.networks.items():
        OnnxNetwork(name, spec, bundle.files[spec.file])
        size = len(bundle.files[spec.file])
        outputs = list(spec.outputs)
        rows.append({"name": name, "file": spec.file, "size_bytes": size, "head": spec.head, "outputs": outputs})
        if not as_json:
            print(f"{name}: {spec.file}, {size} bytes, {spec.head or 'outputs ' + ', '.join(outputs)}: good")
    if as_json:
        print(json.dumps({"networks": rows}))
    return 0
