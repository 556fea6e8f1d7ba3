# SPDX-License-Identifier: BSD-3-Clause
"""Export of bundles: folders with all files that firmware needs to run a compiled model and to check its results."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from openneutron import __version__, litert, targets
from openneutron.device import files, pte
from openneutron.device.files import existing
from openneutron.device.forms import LITERT, PTE, form_of
from openneutron.device.runtime_sources import runtime_folder, sources_of
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.features.export import c_text, readme
from openneutron.features.export.deployment import Deployment, Golden
from openneutron.features.export.forms import CMAKE, FORMS, PUBLIC, Form, with_relative_includes
from openneutron.features.export.read import GoldenSample, Reference, read_pte, read_sample, read_tflite, reference_of
from openneutron.features.export.read import golden as golden_of
from openneutron.isa.kernel_selection import KernelSelection, called_kernels
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


Model = CompiledProgram | str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Bundle:
    """The result of ``openneutron.export_bundle``: the folder that was written, the names of its files, and the models
    that are in it.

    ``targets`` has the chip that each model was compiled for; None for a chip that does not come with this package.
    """

    folder: Path
    form: str
    files: tuple[str, ...]
    deployments: tuple[Deployment, ...] = field(repr=False)
    kernels: tuple[str, ...]
    targets: tuple[Target | None, ...] = field(default=(), repr=False)

    @property
    def memory(self) -> dict[str, int]:
        """Return the sizes of the models' parts that are known before linking, in bytes by name; see
        ``readme.memory``."""
        return readme.memory_of_all(self.deployments)


def export_bundle(
    model: Model | Sequence[Model],
    to: str | os.PathLike[str],
    *,
    form: str = "",
    port: str = "",
    force: bool = False,
    golden: str | os.PathLike[str] | None = None,
    reference: str | os.PathLike[str] | None = None,
    data: DataOptions = DataOptions(),
) -> Bundle:
    """Write compiled models as a folder that builds without changes. The same models give the same bytes.

    Args:
        model: The result of ``openneutron.compile``, a ``.pte``, or a compiled ``.tflite`` that is one NeutronGraph; or several of
            these, which share the kernels and may share one arena.
        to: A folder that does not exist, is empty, or is an earlier export.
        form: ``cortex_m33`` (CMake, with an example that checks itself in QEMU), ``cmake`` (a CMake package for any core), ``zephyr``
            (a module), ``cmsis-pack``, ``arduino`` (a library), ``esp-idf`` (a component), ``mcuxpresso`` (a component), or ``mcxn947``
            (CMake, Zephyr and MCUXpresso, for the MCX N947). Empty: that of the target, if the target is a CPU; else ``cortex_m33``.
            ``zephyr-nxp``, ``mcuxpresso-nxp`` and ``linux-nxp`` are for programs of NXP's converter, and link NXP's driver from the
            user's own SDK.
        port: The earlier name of ``form``.
        force: True writes into any folder, and over changed files.
        golden: Data whose first sample the example runs on: the path of a folder of pictures, WAV files or ``.npy`` files, of a ``.npy``
            or ``.npz`` file, or ``file.py:loader``. None: the first sample of the calibration, where a model in memory was
            calibrated on data with a preprocessing, else random values.
        reference: For programs of NXP's converter: the ``.tflite`` from which the converter made the only program of the model. LiteRT's
            reference kernels compute the expected outputs of the example from it. None: the partitions of a model in memory; a file
            then has no expected outputs.
        data: The preprocessing of ``golden``. Without one, it is that of the calibration, as the ``.pte`` states it.

    Returns:
        The description of the written folder.

    Raises:
        InvalidModelError: A part of the model runs on the CPU, the model was compiled for a chip whose own controller runs the kernels,
            or the form is not for the driver of the model's microcode.
        InvalidProgramError: The file is not compiled.
        InvalidOptionError: The folder is unusable, the form unknown, ``golden`` does not fit the model, or two models have one name.
        MissingToolError: The package was not built.

    >>> import openneutron
    >>> openneutron.export_bundle("net.pte", "firmware")  # doctest: +SKIP
    >>> openneutron.export_bundle("net.pte", "firmware", form="linux")
    Traceback (most recent call last):
        ...
    openneutron.errors.InvalidOptionError: form: 'linux' is unknown; there are cortex_m33, zephyr, mcuxpresso, mcxn947, cmake, arduino, cmsis-pack, esp-idf, zephyr-nxp, mcuxpresso-nxp, linux-nxp. Did you mean 'linux-nxp'?
    """
    name = form or port
    if name and name not in FORMS:
        raise InvalidOptionError(f"form: {_unknown_form(name)}")
    place = Path(to)
    earlier = check_folder(place, force)
    several = model if isinstance(model, Sequence) and not isinstance(model, str) else [model]
    if golden is not None and len(several) != 1:
        raise InvalidOptionError(f"golden: there are {len(several)} models. Export one model with golden data.")
    is_nxp = bool(name) and FORMS[name].is_nxp
    if reference is not None and (not is_nxp or len(several) != 1):
        raise InvalidOptionError(
            f"reference: it is for one model in a form with NXP's driver ({', '.join(_nxp_forms())}). Leave it out."
        )
    read = [_read(each, is_nxp) for each in several]
    prefixes = [each.deployment.prefix for each in read]
    for prefix in prefixes:
        if prefixes.count(prefix) > 1:
            raise InvalidOptionError(f"model: two models have the name '{prefix}' in C. Rename one of the files.")
    chosen = FORMS[name or _default_form([each.target for each in read])]
    _check_jobs(chosen, read)
    checked = [_checked(each, golden, data, _references(each, reference) if is_nxp else None) for each in read]
    contents = _contents(chosen, checked)
    deployments = tuple(each.deployment for each in read)
    manifest = {
        "made_by": MADE_BY,
        "models": [each.source for each in read],
        "form": chosen.name,
        "files": digests(contents),
    }
    contents[MANIFEST] = f"{json.dumps(manifest, indent=1)}\n".encode()
    write_folder(place, contents, earlier)
    kernels = () if is_nxp else _kernels(deployments)
    return Bundle(
        place, chosen.name, tuple(sorted(contents)), deployments, kernels, tuple(each.target for each in read)
    )


def _check_jobs(form: Form, models: Sequence[_Read]) -> None:
    """Raise InvalidModelError for a model with matrix products on the NPU in a form that is not for Linux."""
    for each in models:
        if each.deployment.has_jobs and "host" not in form.ports:
            raise InvalidModelError(
                f"'{each.source}' has matrix products for the NPU of i.MX 95, whose driver is a library for Linux. Export it with --for "
                f"{CMAKE.name}."
            )


def _nxp_forms() -> list[str]:
    return [form.name for form in FORMS.values() if form.is_nxp]


def _references(read: _Read, given: str | os.PathLike[str] | None) -> list[Reference]:
    """Return for each program of NXP's converter a ``.tflite`` that computes the same. This is the file ``given``, or
    without one a file made from the partition of a model in memory. Return an empty list if a program has no such
    partition."""
    if given is not None:
        return [reference_of(read.deployment, existing(os.fspath(given)))]
    parts = {part.conversion.program.microcode: part for part in getattr(read.model, "converted", ())}
    found = []
    for call in read.deployment.calls:
        part = parts.get(call.program.microcode)
        if part is None:
            return []
        inputs, outputs = part.conversion.inputs, part.conversion.outputs
        graph = part.graph
        places = tuple(inputs.index(name) for name in graph.inputs)
        found.append(Reference(litert.write(graph), places, tuple(graph.outputs.index(name) for name in outputs)))
    return found


def _default_form(chips: Sequence[Target | None]) -> str:
    """Return the form of the chip that all models were compiled for, if it is a CPU; else the first form."""
    (chip, *others) = set(chips)
    return chip.port.name if chip is not None and not others and chip.cpu is not None else next(iter(FORMS))


def _unknown_form(name: str) -> str:
    """Return the message for an unknown form. If it is the name of a chip or board, the message has the form of
    that."""
    for chip in targets.KNOWN:
        its = targets.described(chip).port
        if name == chip and not its.name:
            return f"'{name}' is a target without a C port; there are {', '.join(FORMS)}."
        if name == chip or name in its.boards:
            return f"'{name}' is a {'target' if name == chip else 'board'}. Give its form, {its.name}."
    near = difflib.get_close_matches(name, FORMS, 1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"'{name}' is unknown; there are {', '.join(FORMS)}.{hint}"


def _target(deployment: Deployment) -> Target | None:
    """Return the chip that all programs were compiled for; None if they are for different chips, or for one that does
    not come with this package."""
    wanted = {call.program.header["target"] for call in deployment.calls}
    return targets.with_checksum(wanted.pop()) if len(wanted) == 1 else None


@dataclass(frozen=True, slots=True)
class _Read:
    """A model as it was read: its deployment, the file name of its source, the preprocessing that the file states (empty if it states
    none), and its chip."""

    model: Model
    deployment: Deployment
    source: str
    preprocessing: str
    target: Target | None


@dataclass(frozen=True, slots=True)
class _Checked:
    """A model with its golden inputs and outputs."""

    read: _Read
    golden: Golden


def _read(model: Model, is_nxp: bool) -> _Read:
    """Return a model with its deployment. Raises InvalidModelError if its chip's own controller runs the kernels."""
    deployment, source, preprocessing = _deployment(model, is_nxp)
    # A file does not name a chip that is not of this package; a model in memory has it.
    target = _target(deployment) or getattr(model, "target", None)
    if target is not None and target.moves_tiles:
        raise InvalidModelError(
            f"'{source}' was compiled for {target.name}, where the NPU's own controller runs the kernels. A bundle is firmware whose core "
            "runs them. Compile the model for a target with a C port (`openneutron targets NAME`), or run the file on Linux with the "
            "delegate for ExecuTorch."
        )
    regions = target.regions if target is not None else ()
    return _Read(model, replace(deployment, regions=regions), source, preprocessing, target)


def _checked(
    read: _Read, golden: str | os.PathLike[str] | None, data: DataOptions, references: Sequence[Reference] | None
) -> _Checked:
    return _Checked(read, golden_of(read.deployment, _sample(read, golden, data), references))


def _kernels(deployments: Sequence[Deployment]) -> tuple[str, ...]:
    return called_kernels([call.program for deployment in deployments for call in deployment.calls])


def _deployment(model: Model, is_nxp: bool) -> tuple[Deployment, str, str]:
    """Return the model's deployment, the file name of its source, and the preprocessing that the file states; an empty
    string if it states none."""
    if not isinstance(model, str | os.PathLike):
        if model.buffer[4:8] == TFLITE:
            return read_tflite(model.buffer, model.name, is_nxp), f"{Path(model.name).stem}.tflite", ""
        return _of_pte(model.buffer, model.name, model.name, f"{model.name}.pte", is_nxp)
    path = existing(os.fspath(model))
    form = form_of(path)
    if form is LITERT:
        return read_tflite(path, path.stem, is_nxp), path.name, ""
    if form is PTE:
        return _of_pte(path.read_bytes(), path.name, path.stem, path.name, is_nxp)
    raise InvalidModelError(f"'{path}' is neither a .pte nor a compiled .tflite; a bundle is made from one of these.")


def _of_pte(buffer: bytes, file: str, name: str, source: str, is_nxp: bool) -> tuple[Deployment, str, str]:
    return read_pte(buffer, file, name, is_nxp), source, pte.stated(pte.methods(buffer, file), pte.PREPROCESSING)


def _sample(read: _Read, golden: str | os.PathLike[str] | None, options: DataOptions) -> GoldenSample | None:
    """Return the sample on which the example runs; None for random values. Raises InvalidOptionError if options of
    the data are set without ``golden``, or if ``golden`` is given for a language model."""
    if golden is not None and read.deployment.language is not None:
        raise InvalidOptionError(
            f"golden: '{read.source}' is a language model, whose example continues a prompt of its own. Leave it out."
        )
    if golden is not None:
        return read_sample(os.fspath(golden), read.deployment, options, read.preprocessing)
    for name in changed(options):
        raise InvalidOptionError(f"{name}: there is no golden input that it is about. Give golden too.")
    calibrated = getattr(read.model, "calibrated", None)
    if not read.preprocessing or calibrated is None or not calibrated.sample:
        return None
    title = f"the first calibration sample after `{c_text.plain_name(read.preprocessing)}`"
    return GoldenSample(title, calibrated.sample)


def _contents(form: Form, models: Sequence[_Checked]) -> dict[str, bytes]:
    """Return the contents of all files of the folder by name, except the manifest."""
    deployments = [each.read.deployment for each in models]
    kernels = () if form.is_nxp else _kernels(deployments)
    contents = {**_models(form, deployments, kernels), **_example(models)}
    has_far = any(each.largest("debug_size") for each in deployments)
    contents["include/openneutron.h"] = template("api/openneutron.h")
    if has_far:
        contents["include/openneutron.h"] = _for_three(template("api/openneutron.h").decode(), ARENAS).encode()
    contents["src/openneutron_values.c"] = template("api/openneutron_values.c")
    if not form.is_nxp:
        contents |= _runtime(form, kernels, has_far)
        contents["src/openneutron.c"] = template("api/openneutron.c")
    if any(each.language is not None for each in deployments):
        contents["include/openneutron_text.h"] = template("api/openneutron_text.h")
        contents["src/openneutron_text.c"] = template("api/openneutron_text.c")
    if any(each.has_jobs for each in deployments):
        contents |= {f"src/{name}": template(f"api/{name}") for name in ("openneutron_jobs.h", "openneutron_jobs.c")}
    if "host" in form.ports:
        contents["src/openneutron_threads.c"] = template("api/openneutron_threads.c")
    contents["LICENSE"] = _licence()
    words = _words(form, models, kernels)
    for name in (*form.includes, form.name):
        own = TEMPLATES / name / "files"
        contents |= _filled_files(own, words)
    if sum(readme.memory_of_all(deployments)[part] for part in ("microcode", "weights")) > MOST_IN_FLASH:
        contents |= {name: _with_external(contents[name]) for name in (LINKER_SCRIPT,) if name in contents}
    contents["sources.cmake"] = _sources(contents).encode()
    build = filled(template(f"{form.name}/BUILD.md").decode().rstrip(), words)
    if any(each.has_jobs for each in deployments):
        build += f"\n\n{template('api/JOBS.md').decode().rstrip()}"
    executorch = template(form.executorch).decode().rstrip() if form.executorch else ""
    section = (
        f"\n## With ExecuTorch's runtime\n\n`runtime/delegate/` has the delegate. {executorch}\n" if executorch else ""
    )
    words |= {"BUILD": build, "EXECUTORCH": section}
    contents["README.md"] = filled(template("nxp/README.md" if form.is_nxp else "README.md").decode(), words).encode()
    return dict(form.finish(with_relative_includes(contents), words))


def _words(form: Form, models: Sequence[_Checked], kernels: tuple[str, ...]) -> dict[str, str]:
    """Return the values of the placeholders, except those whose values have placeholders."""
    deployments = [each.read.deployment for each in models]
    prefixes = "_".join(each.prefix for each in deployments)
    return readme.values(deployments, kernels) | {
        "MADE_BY": MADE_BY,
        "VERSION": __version__,
        "VENDOR": "OpenNeutron",
        "URL": "https://pypi.org/project/openneutron",
        "PREFIXES": prefixes,
        "PACKAGE": f"OpenNeutron_{prefixes}",
        "SOURCES": ", ".join(f"`{c_text.plain_name(each.read.source)}`" for each in models),
        "FORM_WORDS": form.words,
        "FORM_FILES": form.table,
        "LAYOUT": form.layout,
        "MEMORY_WORDS": form.memory,
        "OPTIONS": form.options,
        "GOLDEN": ", ".join(dict.fromkeys(each.golden.title for each in models)),
        "PREPROCESSING": "".join(
            readme.preprocessing_words(each.read.deployment, each.read.preprocessing) for each in models
        ),
    }


def _filled_files(folder: Path, words: Mapping[str, str]) -> dict[str, bytes]:
    """Return the files of a form. Files whose names end in ``.in`` lose this ending, and get the values of their placeholders."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            data = path.read_bytes()
            if name.endswith(".in"):
                name, data = name.removesuffix(".in"), filled(data.decode(), words).encode()
            found[name] = data
    return found


LINKER_SCRIPT = "port/mps2_an505.ld"

MOST_IN_FLASH = 3 << 20
"""The bytes of microcode and weights in the first memory of QEMU's machine, 4 MiB, which also has code and golden values."""


def _with_external(script: bytes) -> bytes:
    """Return the linker script with microcode and weights in the machine's larger memory."""
    alias = b'REGION_ALIAS("MODEL", FLASH)'
    assert alias in script
    return script.replace(alias, alias.replace(b"FLASH", b"EXTERNAL"))


HEAP = "#define NO_HEAP_USAGE 0"
REGIONS = "#define NEUTRON_REGIONS 2"
ARENAS = "#define OPENNEUTRON_MAX_ARENAS 2"


def _runtime(form: Form, kernels: tuple[str, ...], has_far: bool) -> dict[str, bytes]:
    """Return the source files of the runtime for these kernels. The driver in it uses no heap. With ``has_far``, it
    runs programs that use three memory regions."""
    parts = (*(["delegate"] if form.executorch else []), *(f"ports/{port}" for port in form.ports))
    wanted = ("include/", "driver/", "kernels/", "device_model/", *(f"{part}/" for part in parts))
    contents = {f"runtime/{name}": data for name, data in sources_of(kernels).items() if name.startswith(wanted)}
    header = contents["runtime/include/NeutronDriver.h"].decode()
    assert HEAP in header
    header = header.replace(HEAP, HEAP.replace("0", "1"))
    contents["runtime/include/NeutronDriver.h"] = (_for_three(header, REGIONS) if has_far else header).encode()
    return contents


def _for_three(header: str, macro: str) -> str:
    assert macro in header
    return header.replace(macro, macro.replace("2", "3"))


def _models(form: Form, deployments: Sequence[Deployment], kernels: tuple[str, ...]) -> dict[str, bytes]:
    texts = {
        "openneutron_models.h": c_text.models_header(deployments, form.is_nxp),
        "openneutron_models.c": c_text.models_source(deployments),
    }
    equal = c_text.equal_weights(deployments)
    for each in deployments:
        texts[f"{each.prefix}_model.h"] = c_text.model_header(each, MADE_BY)
        texts[f"{each.prefix}_model.c"] = c_text.model_source(each, equal)
    if not form.is_nxp:
        texts["kernel_selection.c"] = KernelSelection(MADE_BY, kernels).text()
    return {f"model/{name}": text.encode() for name, text in texts.items()}


def _example(models: Sequence[_Checked]) -> dict[str, bytes]:
    names = ["main.c", "selfcheck.c", "golden.h", "board.h"]
    names += ["camera.h"] if any(each.read.deployment.takes_frames for each in models) else []
    contents = {f"example/{name}": template(f"example/{name}") for name in names}
    golden = c_text.golden_source([(each.read.deployment, each.golden) for each in models])
    return {**contents, "example/golden.c": golden.encode()}


def _sources(contents: Mapping[str, bytes]) -> str:
    folders = ("model/", "runtime/", "src/", "nxp/")
    parts = "runtime/device_model/"  # included by other sources
    compiled = [
        name
        for name in sorted(contents)
        if name.endswith(".c") and name.startswith(folders) and not name.startswith(parts)
    ]
    threads = [name for name in compiled if name in ("src/openneutron_threads.c", "runtime/ports/host/host_threads.c")]
    return c_text.sources_cmake(
        {
            "SOURCES": [name for name in compiled if name not in threads],
            "THREAD_SOURCES": threads,
            "EXAMPLE_SOURCES": ["example/golden.c", "example/selfcheck.c"],
            "INCLUDES": [
                folder for folder in (*PUBLIC, "nxp") if any(name.startswith(f"{folder}/") for name in contents)
            ],
        }
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
