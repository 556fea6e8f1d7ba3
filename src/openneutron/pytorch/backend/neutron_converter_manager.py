# SPDX-License-Identifier: BSD-3-Clause
"""The conversion of a ``.tflite``, under the names of ExecuTorch's NXP backend."""

from __future__ import annotations

from pathlib import Path

from openneutron import litert, targets
from openneutron.compiler import CompileOptions
from openneutron.device import files
from openneutron.device.converter.kernel_selections import check_target, selection_of
from openneutron.device.mixed import compile_file
from openneutron.options import CALLER


class NeutronConverterManager:
    """Compiles files with this project's compiler. ``dump_kernel_selection_code``: True writes ``_kernel_selection_TAG.c`` to the
    working directory at each conversion."""

    def __init__(self, dump_kernel_selection_code: bool = False) -> None:
        self.dump_kernel_selection_code = dump_kernel_selection_code

    def verify_target(self, target: str) -> None:
        """Raise InvalidTargetError for a target that is unknown or can't be compiled for."""
        targets.get(target)

    def convert(
        self,
        tflite_model: bytes,
        target: str,
        delegation_tag: str,
        fetch_constants_to_sram: bool = False,
        use_profiling: bool = False,
    ) -> bytes:
        """Return the ``.tflite`` with a NeutronGraph in place of the operators that the NPU can run. Other operators
        stay.

        ``delegation_tag`` names the model in messages and in the name of the kernel selection. Raises
        InvalidTargetError for a target that can't be compiled for, InvalidModelError for a damaged file and where no
        operator can run on the NPU, and BudgetError where a partition needs more SRAM than the target has. With
        ``dump_kernel_selection_code``, raises InvalidOptionError for a target whose host core links no kernels.
        """
        self.verify_target(target)
        options = CompileOptions(
            target=target, io_place=CALLER, prefetch_constants=fetch_constants_to_sram, profile=use_profiling
        )
        if self.dump_kernel_selection_code:
            check_target(target)
        compiled = compile_file(litert.read(bytes(tflite_model)), delegation_tag, options)
        if self.dump_kernel_selection_code:
            text = selection_of(compiled.programs().values()).text()
            files.write({Path(f"_kernel_selection_{delegation_tag}.c"): text.encode()})
        return compiled.to_bytes()
