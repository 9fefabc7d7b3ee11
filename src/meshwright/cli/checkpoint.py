"""`meshwright checkpoint`: verify, show and convert what training saves."""

import sys
from pathlib import Path
from typing import Any

import click

from ..errors import InputError
from .help_format import Listing


@click.group(cls=Listing, epilog="Example: meshwright checkpoint verify runs/20260101-120000")
def command() -> None:
    """Verify, show and convert checkpoints.

    PATH is a checkpoint, a run folder or its checkpoints folder; of several the newest is taken.
    """


@command.command(epilog="Example: meshwright checkpoint verify runs/20260101-120000")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one object a checkpoint.")
def verify(path: Path, as_json: bool) -> int:
    """Read every byte of all checkpoints under PATH; exit 2 naming the first file that is damaged."""
    from ..files import to_json
    from ..train.checkpoint.manifest import read_manifest
    from ..train.checkpoint.stored import verify_pieces
    from ..units import format_bytes

    for found in _all(path):
        size_bytes = verify_pieces(found, read_manifest(found))
        if as_json:
            sys.stdout.write(to_json({"checkpoint": str(found), "bytes": size_bytes, "whole": True}) + "\n")
        else:
            click.echo(f"{found}: whole ({format_bytes(size_bytes)})")
    return 0


@command.command(epilog="Example: meshwright checkpoint show runs/20260101-120000 --tensors")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--tensors", is_flag=True, help="List every tensor with its type, shape and pieces.")
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
def show(path: Path, tensors: bool, as_json: bool) -> int:
    """Show step, layout, data position, schedule and sizes, from the manifest alone."""
    from ..files import to_json
    from ..train.checkpoint.manifest import manifest_facts, read_manifest
    from ..units import counted, format_bytes

    found = _all(path)[0]
    manifest = read_manifest(found)
    facts: dict[str, Any] = manifest_facts(manifest)
    if as_json:
        listing = {"tensors": manifest.tensors} if tensors else {}
        sys.stdout.write(to_json({"checkpoint": str(found), **facts, **listing}) + "\n")
        return 0
    click.echo(str(found))
    sizes, files = facts.pop("bytes"), facts.pop("files")
    for name, value in facts.items():
        if value not in ("", {}):
            click.echo(f"  {name:<14} {_line(value)}")
    click.echo(f"  {'holds':<14} {', '.join(f'{name} {format_bytes(size)}' for name, size in sizes.items())}")
    click.echo(f"  {'files':<14} {len(files)}, {format_bytes(sum(files.values()))}")
    for name, tensor in manifest.tensors.items() if tensors else ():
        click.echo(f"  {name}  {tensor.dtype}{list(tensor.shape)}  {counted(len(tensor.pieces), 'piece')}")
    return 0


@command.command(epilog="Example: meshwright checkpoint convert runs/20260101-120000 llama/")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
def convert(source: Path, target: Path, as_json: bool) -> int:
    """Turn a checkpoint into a folder that `transformers` loads (LlamaForCausalLM), or such a folder into a checkpoint.

    Which way is seen from SOURCE: a folder with config.json and no manifest is Hugging Face's. A run starts from an
    imported one with `--set train.start_from=TARGET`.
    """
    from ..files import to_json
    from ..train.checkpoint.llama import LOOK_BYTES, look_at_checkpoint, look_at_folder, names_of
    from ..train.checkpoint.manifest import read_manifest
    from ..train.checkpoint.stored import verify_tensors

    if (source / "config.json").exists():
        theirs = look_at_folder(source, target)
        from ..train.checkpoint.huggingface import import_folder  # imports torch: what is refused does not wait for it

        tensors = len(import_folder(theirs, target).tensors)
        facts: dict[str, Any] = {"checkpoint": str(target), "tensors": tensors}
        text = f"{target}: {tensors} tensors; --set train.start_from={target} starts from them"
    else:
        found = _all(source)[0]
        manifest = read_manifest(found)
        model = look_at_checkpoint(manifest, found, target)
        verify_tensors(found, manifest, names_of(model), most_bytes=LOOK_BYTES)
        from ..train.checkpoint.huggingface import export  # imports torch: what is refused does not wait for it

        files = export(found, manifest, target)
        facts, text = {"folder": str(target), "files": files}, f"{target}: {', '.join(files)}"
    click.echo(to_json(facts) if as_json else text)
    return 0


def _all(path: Path) -> list[Path]:
    """Return the checkpoints that a path names, the newest first; InputError if there is none."""
    from ..train.checkpoint.folder import checkpoints
    from ..train.checkpoint.manifest import MANIFEST

    if (path / MANIFEST).exists():
        return [path]
    found = checkpoints(path / "checkpoints") or checkpoints(path)
    if not found:
        raise InputError(f"{path}: no checkpoint; expected a folder with {MANIFEST}, or a run folder")
    return found


def _line(value: Any) -> str:
    return ", ".join(f"{key}={item}" for key, item in value.items()) if isinstance(value, dict) else str(value)
