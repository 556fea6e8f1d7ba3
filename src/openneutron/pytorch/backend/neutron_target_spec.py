# SPDX-License-Identifier: BSD-3-Clause
"""The target and the compile spec of a delegation, in the forms that ExecuTorch's NXP backend gave them.

A compile spec is ExecuTorch's list of keys and bytes that a partitioner hands to the backend.
"""

from __future__ import annotations

import dataclasses
import json
import operator
import re
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from executorch.exir.backend.compile_spec_schema import CompileSpec

from openneutron import targets
from openneutron.errors import InvalidOptionError
from openneutron.options import CALLER, EIQ, CompileOptions
from openneutron.options.flags import did_you_mean, flags_of, read_as, split_flags, with_flags

FLAVOR = "neutron_converter_flavor"
"""The option of ExecuTorch 1.0's and 1.1's NXP backend that selected the release of NXP's converter."""

FLAVORS = re.compile(r"SDK_\d+_\d+")
"""The form of a flavor: the package ``neutron_converter_SDK_25_09`` has the flavor ``SDK_25_09``."""


class NeutronHWVersion(Enum):
    """Generations of the NPU."""

    N1 = 1
    N3 = 2


class NeutronTargetSpec:
    """The properties of a target, selected by name; the default is ``targets.DEFAULT``.

    ``target`` is the name of a target, or the path of a file that describes a chip. ``neutron_target`` is the
    target's description in ``openneutron.targets``. Raises InvalidTargetError (a ValueError) for a target that is
    unknown or can't be compiled for. ``neutron_converter_flavor`` (of ExecuTorch 1.1) changes nothing, and a warning
    says so.

    >>> NeutronTargetSpec("imxrt700").get_num_macs()
    8
    """

    def __init__(self, target: str = targets.DEFAULT, neutron_converter_flavor: str | None = None) -> None:
        if neutron_converter_flavor is not None:
            warn_of_flavor(neutron_converter_flavor, stacklevel=2)
        self.neutron_target = targets.get(target)
        self._given = target

    def get_name(self) -> str:
        """Return the name of the target, or the path of its file, as it was given."""
        return self._given

    def is_subsystem(self) -> bool:
        """Return whether the NPU has a controller and a memory of its own."""
        return self.neutron_target.subsystem

    def get_num_units(self) -> int:
        """Return the number of NPU units."""
        return self.neutron_target.units

    def get_num_pipes(self) -> int:
        """Return the number of pipelines in a unit."""
        return self.neutron_target.pipelines

    def get_num_macs(self) -> int:
        """Return the number of multiply-accumulates that a pipeline computes in a cycle."""
        return self.neutron_target.macs

    def get_hw_version(self) -> NeutronHWVersion:
        """Return the generation of the NPU."""
        return NeutronHWVersion[self.neutron_target.hw_version]


def is_flavor(argument: object) -> bool:
    """Return whether an argument has the form of a flavor of NXP's converter, which ExecuTorch 1.0 and 1.1 take as the second
    positional argument."""
    return isinstance(argument, str) and FLAVORS.fullmatch(argument) is not None


def flavor_note(flavor: str) -> str:
    """Return the sentences of a message about a flavor, without the name of the option."""
    return (
        f"'{flavor}' changes nothing. The release of NXP's converter is that of the installed eiq_neutron_sdk; "
        "whether it compiles, or this project's compiler, is set by options=CompileOptions(converter='eiq')."
    )


def warn_of_flavor(flavor: str, stacklevel: int) -> None:
    """Warn that ``neutron_converter_flavor`` changes nothing."""
    warnings.warn(f"{FLAVOR}: {flavor_note(flavor)}", FutureWarning, stacklevel=stacklevel + 1)


OUTPUT_FORMAT = "tflite"
NONE = "None"

FETCH, PROFILE = "fetchConstantsToSRAM", "useProfiling"
"""The fields of NXP's compilationOpts that are options of this project's compiler too."""

NXP_FLAGS = (
    FETCH,
    PROFILE,
    "dumpAfterGenerate",
    "dumpAfterImport",
    "dumpKernelSelectionCode",
    "excludeGraphPasses",
    "minNumOpsPerGraph",
    "verbose",
)
"""The fields of NXP's compilationOpts that ExecuTorch's NXP backend sets
(executorch/backends/nxp/backend/neutron_converter_manager.py)."""

OURS = "openneutron"
"""The key of this project's own options, which ExecuTorch's NXP backend does not have."""


@dataclass(frozen=True, slots=True)
class DelegateOptions:
    """The options in a compile spec: those of the compiler, and the further ones of ExecuTorch's NXP backend.

    ``name`` is the model's name in messages.
    """

    options: CompileOptions
    operators_not_to_delegate: tuple[str, ...] = ()
    use_neutron_for_format_conversion: bool = True
    intermediates_dir: str | None = None
    dump_kernel_selection_code: bool = False
    name: str = ""

    @property
    def patterns(self) -> tuple[str, ...]:
        """Return ``operators_not_to_delegate`` in the form of node names: ``aten_relu`` for ``aten::relu``."""
        return tuple(name.replace("::", "_") for name in self.operators_not_to_delegate if name)


def with_upstream(
    options: CompileOptions,
    target: str,
    extra_flags: str | Sequence[str] | None = None,
    fetch_constants_to_sram: bool = False,
    use_profiling: bool = False,
    stacklevel: int = 2,
) -> CompileOptions:
    """Return the compiler's options with the parameters of ExecuTorch's NXP backend applied.

    ``extra_flags`` are flags of the selected converter. This project's compiler accepts NXP's flags too, and a warning names those
    that had no effect. Inputs and outputs are the caller's unless ``io_place`` is set. Raises InvalidOptionError where a flag is
    unusable or contradicts an option that is set, or where ``options`` has another target.
    """
    if options.target not in (targets.DEFAULT, target):
        raise InvalidOptionError(
            f"target: the compile spec is for '{target}', its options are for '{options.target}'. Leave one out."
        )
    flags = read_as("extra_flags", split_flags, extra_flags)
    fetch, profile = fetch_constants_to_sram, use_profiling
    if flags and options.converter != EIQ:
        flags, theirs = nxp_flags(flags)
        fetch, profile = fetch or theirs.get(FETCH, False), profile or theirs.get(PROFILE, False)
        without_effect = [f"--{name}" for name in theirs if name not in (FETCH, PROFILE)]
        if without_effect:
            warnings.warn(
                f"extra_flags: {', '.join(without_effect)} had no effect: this project's compiler has no such option of NXP's "
                "converter. CompileOptions(converter='eiq') selects NXP's converter.",
                UserWarning,
                stacklevel=stacklevel,
            )
    options = dataclasses.replace(
        options,
        target=target,
        prefetch_constants=options.prefetch_constants or fetch,
        profile=options.profile or profile,
    )
    if options.converter == EIQ:
        options = dataclasses.replace(options, converter_flags=(*options.converter_flags, *flags))
    else:
        options = with_flags(options, flags)
    return options.placed(CALLER)


def nxp_flags(flags: Sequence[str]) -> tuple[tuple[str, ...], dict[str, bool]]:
    """Return the flags of this project's compiler, and a dict of the flags of NXP's converter. The dict maps a flag's
    name without ``--`` to True, or to False if the flag is off: ``--name=false``, ``--name=0`` or ``--name=no``.

    NXP's flags are those in ``NXP_FLAGS``, and unknown flags in camel case, like the fields of NXP's compilationOpts,
    unless a flag of this project's compiler is similar. A value may also be the text that follows its flag.
    """
    ours: list[str] = []
    theirs: dict[str, bool] = {}
    known = [name for flag in flags_of(CompileOptions).values() for name in flag.values or (flag.name,)]
    rest = list(flags)
    while rest:
        flag = rest.pop(0)
        name, equals, text = flag.removeprefix("--").partition("=")
        is_foreign = re.fullmatch(r"[a-z]+[A-Z]\w*", name) is not None and not did_you_mean(f"--{name}", known)
        if flag.startswith("--") and (name in NXP_FLAGS or is_foreign):
            if not equals and rest and not rest[0].startswith("-"):
                text = rest.pop(0)
            theirs[name] = text.lower() not in ("false", "0", "no")
        else:
            ours.append(flag)
            if not equals and rest and not rest[0].startswith("--"):
                ours.append(rest.pop(0))
    return tuple(ours), theirs


def encode_specs(delegate: DelegateOptions) -> list[CompileSpec]:
    """Return the compile spec: the nine keys of ExecuTorch's NXP backend in its order, then the key ``OURS``."""
    ours = {"name": delegate.name, "options": delegate.options.to_dict()}
    texts = {**_upstream(delegate), OURS: json.dumps(ours, default=operator.index)}
    return [CompileSpec(key, text.encode()) for key, text in texts.items()]


def _upstream(delegate: DelegateOptions) -> dict[str, str]:
    options = delegate.options
    return {
        "output_format": OUTPUT_FORMAT,
        "compile_flags": shlex.join(options.converter_flags),
        "target": options.target,
        "intermediates_dir": delegate.intermediates_dir or NONE,
        "operators_not_to_delegate": ",".join(delegate.patterns),
        "use_neutron_for_format_conversion": str(delegate.use_neutron_for_format_conversion),
        "fetch_constants_to_sram": str(options.prefetch_constants),
        "dump_kernel_selection_code": str(delegate.dump_kernel_selection_code),
        "use_profiling": str(options.profile),
    }


def is_ours(specs: Sequence[CompileSpec]) -> bool:
    """Return whether ``encode_specs`` made the compile spec, rather than ExecuTorch's NXP backend."""
    return any(spec.key == OURS for spec in specs)


def decode_specs(specs: Sequence[CompileSpec]) -> DelegateOptions:
    """Return the options in a compile spec that ``encode_specs`` or ExecuTorch's NXP backend made. Missing values get
    their defaults, except the output format and the target.

    Raises RuntimeError without an output format or with an unknown one, as ExecuTorch's NXP backend does. Raises
    InvalidOptionError if the target is missing or a value is unreadable. It is also raised if a value contradicts
    this project's own options, which ``encode_specs`` adds under the key ``OURS``.
    """
    texts = {spec.key: bytes(spec.value).decode() for spec in specs}
    if "output_format" not in texts:
        raise RuntimeError("output format is required")
    if texts["output_format"] != OUTPUT_FORMAT:
        raise RuntimeError(f"Unknown format {texts['output_format']}")
    if FLAVOR in texts:
        warn_of_flavor(texts[FLAVOR], stacklevel=2)
    if "target" not in texts:
        raise InvalidOptionError("compile spec: it names no target. Make it with generate_neutron_compile_spec.")
    ours = json.loads(texts.get(OURS, "{}"))
    folder = texts.get("intermediates_dir", NONE)
    if ours:
        options = CompileOptions.from_dict(ours["options"])
    else:
        fetch, profile = _flag(texts, "fetch_constants_to_sram", False), _flag(texts, "use_profiling", False)
        options = with_upstream(CompileOptions(), texts["target"], texts.get("compile_flags", ""), fetch, profile)
    decoded = DelegateOptions(
        options,
        tuple(filter(None, texts.get("operators_not_to_delegate", "").split(","))),
        _flag(texts, "use_neutron_for_format_conversion", True),
        None if folder in (NONE, "") else folder,
        _flag(texts, "dump_kernel_selection_code", False),
        ours.get("name", ""),
    )
    for key, text in _upstream(decoded).items() if ours else ():
        if texts.get(key, text) != text:
            raise InvalidOptionError(
                f"compile spec: {key} is '{texts[key]}', but '{text}' in the options beside it. Make the whole list with "
                "generate_neutron_compile_spec."
            )
    return decoded


def _flag(texts: dict[str, str], key: str, default: bool) -> bool:
    text = texts.get(key, str(default))
    if text not in ("True", "False"):
        raise InvalidOptionError(f"compile spec: {key} is '{text}'; it is True or False.")
    return text == "True"
