# SPDX-License-Identifier: BSD-3-Clause
"""The options of a partition's compile, and the CompileSpec list in which ExecuTorch carries them: written and read here."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from executorch.exir.backend.compile_spec_schema import CompileSpec

from openneutron import converter
from openneutron.converter import ConverterOptions
from openneutron.errors import InvalidOptionError
from openneutron.flags import split_flags
from openneutron.options import CALLER
from openneutron.pytorch.backend.neutron_target_spec import FLAVOR, warn_of_flavor

OUTPUT_FORMAT = "tflite"
NONE = "None"


@dataclass(frozen=True, slots=True)
class PartitionCompileOptions:
    """What ``generate_neutron_compile_spec`` takes. ``sram_budget`` is bytes, ``io`` one of ``options.IO_PLACES``,
    ``converter`` one of ``converter.CONVERTERS``."""

    target: str
    extra_flags: tuple[str, ...] = ()
    intermediates_dir: str | None = None
    operators_not_to_delegate: tuple[str, ...] = ()
    use_neutron_for_format_conversion: bool = True
    fetch_constants_to_sram: bool = False
    dump_kernel_selection_code: bool = False
    use_profiling: bool = False
    sram_budget: int | None = None
    io: str = CALLER
    converter: str = converter.OPEN
    name: str = ""
    """What messages call the model."""
    defer_budget: bool = False
    """Whether a partition over the budget gets an empty payload, for the caller to see to once all are compiled."""

    @property
    def conversion(self) -> ConverterOptions:
        """The part the converter wants."""
        return ConverterOptions(
            target=self.target,
            sram_budget=self.sram_budget,
            io=self.io,
            fetch_constants_to_sram=self.fetch_constants_to_sram,
            profile=self.use_profiling,
            kernel_selection=self.dump_kernel_selection_code,
            flags=self.extra_flags,
        )

    @property
    def patterns(self) -> tuple[str, ...]:
        """``operators_not_to_delegate`` as they are looked for in node names: ``aten::relu`` is ``aten_relu``."""
        return tuple(name.replace("::", "_") for name in self.operators_not_to_delegate if name)


def encode(options: PartitionCompileOptions) -> list[CompileSpec]:
    """The list; the first nine keys and their order are those of ExecuTorch's NXP backend, the others ours."""
    texts = {
        "output_format": OUTPUT_FORMAT,
        "compile_flags": shlex.join(options.extra_flags),
        "target": options.target,
        "intermediates_dir": options.intermediates_dir or NONE,
        "operators_not_to_delegate": ",".join(options.patterns),
        "use_neutron_for_format_conversion": str(options.use_neutron_for_format_conversion),
        "fetch_constants_to_sram": str(options.fetch_constants_to_sram),
        "dump_kernel_selection_code": str(options.dump_kernel_selection_code),
        "use_profiling": str(options.use_profiling),
        "sram_budget": NONE if options.sram_budget is None else str(options.sram_budget),
        "io": options.io,
        "converter": options.converter,
        "name": options.name,
    }
    if options.defer_budget:
        texts["defer_budget"] = str(True)
    return [CompileSpec(key, text.encode()) for key, text in texts.items()]


def is_ours(specs: Sequence[CompileSpec]) -> bool:
    """Whether the list was made here, and not by ExecuTorch's NXP backend, whose keys are the first nine of ours."""
    return any(spec.key == "converter" for spec in specs)


def decode(specs: Sequence[CompileSpec]) -> PartitionCompileOptions:
    """The options in the list. Raises RuntimeError without an output format or with an unknown one, as ExecuTorch's NXP
    backend does, and InvalidOptionError where another key is missing or unreadable."""
    texts = {spec.key: bytes(spec.value).decode() for spec in specs}
    if "output_format" not in texts:
        raise RuntimeError("output format is required")
    if texts["output_format"] != OUTPUT_FORMAT:
        raise RuntimeError(f"Unknown format {texts['output_format']}")
    budget = texts.get("sram_budget", NONE)
    if budget != NONE and not budget.isdecimal():
        raise InvalidOptionError(f"compile spec: sram_budget is '{budget}'; it is a number of bytes, or None.")
    if FLAVOR in texts:
        warn_of_flavor(texts[FLAVOR], stacklevel=2)
    if "target" not in texts:
        raise InvalidOptionError("compile spec: it names no target. Make it with generate_neutron_compile_spec.")
    return PartitionCompileOptions(
        target=texts["target"],
        extra_flags=split_flags(texts.get("compile_flags", "")),
        intermediates_dir=_optional(texts.get("intermediates_dir", NONE)),
        operators_not_to_delegate=tuple(filter(None, texts.get("operators_not_to_delegate", "").split(","))),
        use_neutron_for_format_conversion=_flag(texts, "use_neutron_for_format_conversion", True),
        fetch_constants_to_sram=_flag(texts, "fetch_constants_to_sram", False),
        dump_kernel_selection_code=_flag(texts, "dump_kernel_selection_code", False),
        use_profiling=_flag(texts, "use_profiling", False),
        sram_budget=None if budget == NONE else int(budget),
        io=texts.get("io", CALLER),
        converter=texts.get("converter", converter.OPEN),
        name=texts.get("name", ""),
        defer_budget=_flag(texts, "defer_budget", False),
    )


def _optional(text: str) -> str | None:
    return None if text in (NONE, "") else text


def _flag(texts: dict[str, str], key: str, default: bool) -> bool:
    text = texts.get(key, str(default))
    if text not in ("True", "False"):
        raise InvalidOptionError(f"compile spec: {key} is '{text}'; it is True or False.")
    return text == "True"
