# SPDX-License-Identifier: BSD-3-Clause
"""Export of bundles: folders with all files that firmware needs to run a compiled model and to check its results."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from openneutron import __version__, targets
from openneutron.device import files, pte
from openneutron.device.files import existing
from openneutron.device.forms import LITERT, PTE, form_of
from openneutron.device.runtime_sources import runtime_folder, sources_of
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.features.export import c_text, readme
from openneutron.features.export.c_text import Deployment
from openneutron.features.export.read import Golden, GoldenSample, read_pte, read_sample, read_tflite
from openneutron.features.export.read import golden as golden_of
from openneutron.features.export.readme import PORTS, Port
from openneutron.isa.kernel_selection import KernelSelection, called_kernels
from openneutron.isa.rows import ALIGNMENT
from openneutron.litert.read import FILE_IDENTIFIER as TFLITE
from openneutron.options import DataOptions, changed
from openneutron.targets import Target

TEMPLATES = Path(__file__).parent / "templates"

MADE_BY = f"OpenNeutron {__version__}"


class CompiledProgram(Protocol):
    """The attributes of a result of ``openneutron.compile`` that an export reads."""

    @property
    def name(self) -> str: ...

    @property
    def buffer(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Bundle:
    """The result of ``openneutron.export_bundle``: the folder that was written, the names of its files, and the model
    that is in it.

    ``target`` is the chip that the model was compiled for; None for a chip that does not come with this package.
    """

    folder: Path
    port: str
    files: tuple[str, ...]
    deployment: Deployment = field(repr=False)
    kernels: tuple[str, ...]
    target: Target | None = field(default=None, repr=False)

    @property
    def memory(self) -> dict[str, int]:
        """Return the sizes of the model's parts that are known before linking, in bytes by name; see
        ``readme.memory``."""
        return readme.memory(self.deployment)


def export_bundle(
    model: CompiledProgram | str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    port: str = "cortex_m33",
    force: bool = False,
    golden: str | os.PathLike[str] | None = None,
    data: DataOptions = DataOptions(),
) -> Bundle:
    """Write a compiled model as a folder that builds without changes. The same model gives the same bytes.

    Args:
        model: The result of ``openneutron.compile``, a ``.pte``, or a compiled ``.tflite`` that is one NeutronGraph.
        to: A folder that does not exist, is empty, or is an earlier export.
        port: ``cortex_m33`` (CMake, with an example that checks itself in QEMU), ``zephyr`` (a module) or
            ``mcuxpresso`` (a component), or ``mcxn947`` (all three, for the MCX N947).
        force: True writes into any folder, and over changed files.
        golden: Data whose first sample the example runs on: the path of a folder of pictures, WAV files or ``.npy`` files, of a ``.npy``
            or ``.npz`` file, or ``file.py:loader``. None: the first sample of the calibration, where a model in memory was
            calibrated on data with a preprocessing, else random values.
        data: The preprocessing of ``golden``. Without one, it is that of the calibration, as the ``.pte`` states it.

    Returns:
        The description of the written folder.

    Raises:
        InvalidModelError: A part of the model runs on the CPU, or the model was compiled for a chip whose own controller runs the kernels.
        InvalidProgramError: The file is not compiled.
        InvalidOptionError: The folder is unusable, the port unknown, or ``golden`` does not fit the model.
        MissingToolError: The package was not built.

    >>> import openneutron
    >>> openneutron.export_bundle("net.pte", "firmware")  # doctest: +SKIP
    >>> openneutron.export_bundle("net.pte", "firmware", port="linux")
    Traceback (most recent call last):
        ...
    openneutron.errors.InvalidOptionError: port: 'linux' is unknown; there are cortex_m33, zephyr, mcuxpresso, mcxn947.
    """
    chosen = PORTS.get(port)
    if chosen is None:
        raise InvalidOptionError(f"port: {_unknown_port(port)}")
    place = Path(to)
    earlier = check_folder(place, force)
    deployment, source, preprocessing = _deployment(model)
    target = _target(deployment)
    if target is not None and target.moves_tiles:
        raise InvalidModelError(
            f"'{source}' was compiled for {target.name}, where the NPU's own controller runs the kernels. A bundle is firmware whose core "
            "runs them. Compile the model for a target with a C port (`openneutron targets NAME`), or run the file on Linux with the "
            "delegate for ExecuTorch."
        )
    kernels = called_kernels([call.program for call in deployment.calls])
    expected = golden_of(deployment, _sample(model, deployment, golden, data, preprocessing))
    contents = _contents(deployment, source, kernels, chosen, expected, preprocessing)
    manifest = {"made_by": MADE_BY, "model": source, "port": port, "files": digests(contents)}
    contents[MANIFEST] = f"{json.dumps(manifest, indent=1)}\n".encode()
    write_folder(place, contents, earlier)
    return Bundle(place, port, tuple(sorted(contents)), deployment, kernels, target)


def _unknown_port(port: str) -> str:
    """Return the message for an unknown port. If it is the name of a chip or board, the message has the port of
    that."""
    for name in targets.KNOWN:
        its = targets.described(name).port
        if port == name and not its.name:
            return f"'{port}' is a target without a C port; there are {', '.join(PORTS)}."
        if port == name or port in its.boards:
            return f"'{port}' is a {'target' if port == name else 'board'}. Give its port, {its.name}."
    near = difflib.get_close_matches(port, PORTS, 1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"'{port}' is unknown; there are {', '.join(PORTS)}.{hint}"


def _target(deployment: Deployment) -> Target | None:
    """Return the chip that all programs were compiled for; None if they are for different chips, or for one that does
    not come with this package."""
    wanted = {call.program.header["target"] for call in deployment.calls}
    return targets.with_checksum(wanted.pop()) if len(wanted) == 1 else None


def _deployment(model: CompiledProgram | str | os.PathLike[str]) -> tuple[Deployment, str, str]:
    """Return the model's deployment, the file name of its source, and the preprocessing that the file states; an empty
    string if it states none."""
    if not isinstance(model, str | os.PathLike):
        if model.buffer[4:8] == TFLITE:
            return read_tflite(model.buffer, model.name), f"{Path(model.name).stem}.tflite", ""
        return _of_pte(model.buffer, model.name, model.name, f"{model.name}.pte")
    path = existing(os.fspath(model))
    form = form_of(path)
    if form is LITERT:
        return read_tflite(path, path.stem), path.name, ""
    if form is PTE:
        return _of_pte(path.read_bytes(), path.name, path.stem, path.name)
    raise InvalidModelError(f"'{path}' is neither a .pte nor a compiled .tflite; a bundle is made from one of these.")


def _of_pte(buffer: bytes, file: str, name: str, source: str) -> tuple[Deployment, str, str]:
    return read_pte(buffer, file, name), source, pte.preprocessing(pte.methods(buffer, file))


def _sample(
    model: CompiledProgram | str | os.PathLike[str],
    deployment: Deployment,
    golden: str | os.PathLike[str] | None,
    options: DataOptions,
    preprocessing: str,
) -> GoldenSample | None:
    """Return the sample on which the example runs; None for random values. Raises InvalidOptionError if options of the
    data are set without ``golden``."""
    if golden is not None:
        return read_sample(os.fspath(golden), deployment, options, preprocessing)
    for name in changed(options):
        raise InvalidOptionError(f"{name}: there is no golden input that it is about. Give golden too.")
    calibrated = getattr(model, "calibrated", None)
    if not preprocessing or calibrated is None or not calibrated.sample:
        return None
    return GoldenSample(f"the first calibration sample after `{c_text.plain_name(preprocessing)}`", calibrated.sample)


def _contents(
    deployment: Deployment, source: str, kernels: tuple[str, ...], port: Port, expected: Golden, preprocessing: str
) -> dict[str, bytes]:
    """Return the contents of all files of the bundle by name, except the manifest."""
    runtime = {f"runtime/{name}": data for name, data in sources_of(kernels).items()}
    contents = {**runtime, **_model(deployment, kernels), **_example(expected)}
    contents["include/openneutron.h"] = template("api/openneutron.h")
    contents["src/openneutron.c"] = template("api/openneutron.c")
    contents["src/openneutron_calls.h"] = template("api/openneutron_calls.h")
    contents["LICENSE"] = _licence()
    contents["example/board.h"] = template("example/board.h")
    for name in (*port.includes, port.name):
        own = TEMPLATES / name / "files"
        contents |= {path.relative_to(own).as_posix(): path.read_bytes() for path in own.rglob("*") if path.is_file()}
    contents["sources.cmake"] = _sources(contents).encode()
    words = readme.values(deployment, kernels)
    words |= {
        "MADE_BY": MADE_BY,
        "SOURCE": c_text.plain_name(source),
        "PORT_WORDS": port.words,
        "PORT_FILES": port.table,
    }
    words |= {
        "BUILD": template(f"{port.name}/BUILD.md").decode().rstrip(),
        "MEMORY_WORDS": port.memory,
        "OPTIONS": port.options,
        "GOLDEN": expected.title,
        "PREPROCESSING": readme.preprocessing_words(preprocessing),
    }
    words["EXECUTORCH"] = template(port.executorch).decode().rstrip()
    contents["README.md"] = filled(template("README.md").decode(), words).encode()
    return contents


def _model(deployment: Deployment, kernels: tuple[str, ...]) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    blobs: dict[str, list[tuple[str, str]]] = {"microcode": [], "weights": []}
    for index, call in enumerate(deployment.calls):
        for part, data in (("microcode", call.program.microcode), ("weights", call.program.weights)):
            contents[f"model/{part}{index}.bin"] = data + bytes(-len(data) % ALIGNMENT) or bytes(ALIGNMENT)
            blobs[part].append((f"openneutron_{part}{index}", f"{part}{index}.bin"))
    for part, listed in blobs.items():
        contents[f"model/{part}.S"] = c_text.blobs_assembler(f"openneutron_{part}", listed).encode()
    contents["model/openneutron_model.h"] = c_text.model_header(deployment).encode()
    contents["model/openneutron_model.c"] = c_text.model_source(deployment).encode()
    contents["model/kernel_selection.c"] = KernelSelection(MADE_BY, kernels).text().encode()
    return contents


def _example(expected: Golden) -> dict[str, bytes]:
    contents = {f"example/{name}": template(f"example/{name}") for name in ("main.c", "golden.h")}
    contents["example/golden.c"] = c_text.golden_source(
        len(expected.inputs), len(expected.outputs), expected.frames
    ).encode()
    listed = []
    for kind, tensors in (("input", expected.inputs), ("output", expected.outputs)):
        for index, data in enumerate(tensors):
            contents[f"example/golden_{kind}{index}.bin"] = data
            listed.append((f"openneutron_golden_{kind}{index}", f"golden_{kind}{index}.bin"))
    contents["example/golden.S"] = c_text.blobs_assembler("openneutron_golden", listed).encode()
    return contents


def _sources(contents: Mapping[str, bytes]) -> str:
    compiled = [name for name in sorted(contents) if name.endswith((".c", ".S", ".bin"))]
    return c_text.sources_cmake(
        [name for name in compiled if name.startswith(("model/", "runtime/", "src/"))],
        [name for name in compiled if name.startswith("example/golden")],
        ["include", "model", "runtime/include", "runtime/ports/cortex_m33"],
        ["src", "runtime/driver", "runtime/kernels"],
    )


def template(name: str) -> bytes:
    """Return the content of a file among this package's templates."""
    return (TEMPLATES / name).read_bytes()


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return the text with each ``@NAME@`` replaced by the value of NAME, which must exist."""

    def value(match: re.Match[str]) -> str:
        assert match[1] in values, f"a template asks for {match[1]}"
        return values[match[1]]

    return re.sub(r"@([A-Z_]+)@", value, text)


def _licence() -> bytes:
    runtime = runtime_folder()
    for path in (runtime / "LICENSE", runtime.parent / "LICENSE"):
        if path.is_file():
            return path.read_bytes()
    raise AssertionError(f"{runtime} has no LICENSE beside it")


MANIFEST = "bundle.json"


def digests(contents: Mapping[str, bytes]) -> dict[str, str]:
    """Return the SHA-256 digest of each file by name, sorted by name."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in sorted(contents.items())}


REFUSED_BY_CMAKE = frozenset(';"\\\n')
"""The characters that a path must not have, since CMake 4.4 or its generator Ninja splits or rejects such paths."""


def check_folder(folder: Path, force: bool) -> dict[str, str]:
    """Return the files of an earlier export with their digests; an empty dict if there was none.

    Raises InvalidOptionError where the folder can't be used. Unless ``force`` is true, this includes folders with files
    that no export made, and files of an earlier export that were changed.
    """
    if not folder.parent.is_dir():
        raise InvalidOptionError(f"--to '{folder}': there is no folder '{folder.parent}'. Make it first.")
    if wrong := sorted(REFUSED_BY_CMAKE & set(str(folder.absolute()))):
        raise InvalidOptionError(
            f"--to {str(folder)!r}: CMake does not build in a folder whose path has {wrong[0]!r}. Choose another folder."
        )
    if not folder.exists():
        return {}
    if not folder.is_dir():
        raise InvalidOptionError(f"--to '{folder}': it is a file; a bundle is a folder. Choose another name.")
    earlier = _manifest(folder)
    if earlier is None:
        if any(folder.iterdir()) and not force:
            raise InvalidOptionError(
                f"--to '{folder}': it has files in it that no export made. Choose an empty folder, or add --force to write among "
                "them."
            )
        return {}
    changed = [
        name
        for name, digest in earlier.items()
        if (folder / name).is_file() and hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest
    ]
    if changed and not force:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise InvalidOptionError(
            f"--to '{folder}': '{changed[0]}'{more} was changed since it was exported. Choose another folder, or add --force to "
            "overwrite it."
        )
    return earlier


def _manifest(folder: Path) -> dict[str, str] | None:
    """Return the files of an earlier export with their digests, from its manifest; None without a valid manifest."""
    try:
        stated = json.loads((folder / MANIFEST).read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(stated, dict):
        return None
    return {
        name: digest
        for name, digest in stated.items()
        if isinstance(name, str)
        and isinstance(digest, str)
        and not Path(name).is_absolute()
        and ".." not in Path(name).parts
    }


def write_folder(folder: Path, contents: Mapping[str, bytes], earlier: Mapping[str, str]) -> None:
    """Write the files of a bundle. Files of an earlier export that are not among them are removed.

    Raises InvalidOptionError where a file can't be written. Folders that were created for the bundle are then removed.
    """
    files.write({folder / name: data for name, data in contents.items()}, folder)
    for name in earlier.keys() - contents.keys():
        with suppress(OSError):
            (folder / name).unlink()
            for parent in (folder / name).relative_to(folder).parents[:-1]:
                (folder / parent).rmdir()
