# SPDX-License-Identifier: BSD-3-Clause
"""The ExecuTorch backend, which compiles a partition of an edge program to a delegate payload, and its compile spec."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, final

import torch
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export import ExportedProgram
from torch.fx import Node

from openneutron.compiler.select.select import Trial
from openneutron.device import converter as converters
from openneutron.device import files
from openneutron.errors import InvalidOptionError
from openneutron.options import CompileOptions
from openneutron.pytorch.backend.compile_spec import DelegateOptions, decode, encode, is_ours, with_upstream
from openneutron.pytorch.backend.neutron_target_spec import is_flavor, warn_of_flavor
from openneutron.pytorch.graph.program import Constants
from openneutron.pytorch.lower.lower import Lowered, Lowering, Refusal, states_of
from openneutron.pytorch.lower.units import find_units
from openneutron.pytorch.partition.compiled import (
    CompiledPartition,
    Interface,
    Origins,
    all_compiled,
    graph_name,
    in_modules,
    layers_of,
    origins_of,
    user_inputs,
)
from openneutron.pytorch.partition.gather import HANDOVER, Handover

core_aten_ops_exception_list = [torch.ops.aten.prelu.default]
"""Operators without a core ATen decomposition, which ``EdgeCompileConfig`` has to accept as they are."""


def generate_neutron_compile_spec(
    config: str,
    system_config: str | None = None,
    extra_flags: str | Sequence[str] | None = None,
    intermediates_dir: str | None = None,
    operators_not_to_delegate: Sequence[str] | None = None,
    use_neutron_for_format_conversion: bool = True,
    fetch_constants_to_sram: bool = False,
    dump_kernel_selection_code: bool = False,
    use_profiling: bool = False,
    *,
    options: CompileOptions = CompileOptions(),
    name: str = "",
    neutron_converter_flavor: str | None = None,
) -> list[CompileSpec]:
    """Return the compile spec for a target.

    The parameters before ``options`` are those of ExecuTorch's NXP backend.

    Args:
        config: The target.
        system_config: Ignored with a warning, as in ExecuTorch's NXP backend. ExecuTorch 1.0 and 1.1 have
            ``neutron_converter_flavor`` in this position: a text such as ``SDK_25_09`` is taken as the flavor.
        extra_flags: The converter's flags as on a command line, in one text or a list. Of this project's compiler:
            ``--sram-budget=KIB``, ``--io-place=arena`` and the others of ``CompileOptions``; of NXP's: fields of its
            compilationOpts. This project's compiler warns of fields of NXP's that have no effect in it.
        intermediates_dir: A folder for each partition's ``.tflite``, before and after compiling.
        operators_not_to_delegate: Operators (``aten::relu``, ``aten.add.Tensor``), nodes (``aten_relu_default_1``) and
            modules (``features.3``); ``*``, ``?`` and ``[...]`` are wildcards.
        use_neutron_for_format_conversion: True transposes contiguous images at inputs and outputs on the NPU, False in
            the runtime.
        fetch_constants_to_sram: ``prefetch_constants`` of ``CompileOptions``.
        dump_kernel_selection_code: True writes a C file that registers only the kernels that a partition calls to the
            working directory.
        use_profiling: ``profile`` of ``CompileOptions``: each kernel call of a run leaves an event in the ETDump.
        options: The compiler's options. Their target is ``config``; inputs and outputs are the caller's unless
            ``io_place`` is set.
        name: The model's name in messages.
        neutron_converter_flavor: Ignored with a warning (ExecuTorch 1.0 and 1.1 had it).

    Returns:
        The list for ``NeutronPartitioner``.

    Raises:
        InvalidTargetError: The target is unknown.
        InvalidOptionError: An option is unusable, or two contradict each other.
        MissingToolError: The converter is NXP's, whose SDK is not installed.

    >>> from openneutron import CompileOptions
    >>> from openneutron.pytorch import NeutronPartitioner
    >>> spec = generate_neutron_compile_spec("imxrt700", options=CompileOptions(sram_budget=64 * 1024))
    >>> partitioner = NeutronPartitioner(spec)
    """
    if system_config is not None and is_flavor(system_config):
        neutron_converter_flavor = system_config
    elif system_config is not None:
        warnings.warn(
            f"system_config: '{system_config}' changes nothing, here as in ExecuTorch's NXP backend; "
            "the target says all there is to say of a chip.",
            UserWarning,
            stacklevel=2,
        )
    if neutron_converter_flavor is not None:
        warn_of_flavor(neutron_converter_flavor, stacklevel=2)
    return encode(
        _delegate_options(
            with_upstream(options, config, extra_flags, fetch_constants_to_sram, use_profiling, stacklevel=3),
            operators_not_to_delegate,
            use_neutron_for_format_conversion,
            intermediates_dir,
            dump_kernel_selection_code,
            name,
        )
    )


class NeutronCompileSpecBuilder:
    """Makes a compile spec in two steps. ``generate_neutron_compile_spec`` makes the same compile spec in one call.
    >>> spec = NeutronCompileSpecBuilder().neutron_compile_spec("imxrt700").build()
    >>> spec == generate_neutron_compile_spec("imxrt700")
    True
    """

    def __init__(self) -> None:
        self._delegate: DelegateOptions | None = None

    def neutron_compile_spec(
        self,
        config: str,
        intermediates_dir: str | None = None,
        extra_flags: str | Sequence[str] | None = None,
        operators_not_to_delegate: Sequence[str] | None = None,
        use_neutron_for_format_conversion: bool = True,
        fetch_constants_to_sram: bool = False,
        dump_kernel_selection_code: bool = False,
        use_profiling: bool = False,
        *,
        options: CompileOptions = CompileOptions(),
        name: str = "",
        neutron_converter_flavor: str | None = None,
    ) -> NeutronCompileSpecBuilder:
        """Set the options of the compile spec and return the builder. It can be called once.

        The parameters and errors are those of ``generate_neutron_compile_spec``. ExecuTorch 1.0 and 1.1 have
        ``neutron_converter_flavor`` in the second position: a text such as ``SDK_25_09`` there is taken as the flavor. A folder of
        that name is written ``./SDK_25_09``.
        """
        if is_flavor(intermediates_dir):
            neutron_converter_flavor, intermediates_dir = intermediates_dir, None
        if neutron_converter_flavor is not None:
            warn_of_flavor(neutron_converter_flavor, stacklevel=2)
        assert self._delegate is None, "the compile spec is set already; make a new builder for another one"
        self._delegate = _delegate_options(
            with_upstream(options, config, extra_flags, fetch_constants_to_sram, use_profiling, stacklevel=3),
            operators_not_to_delegate,
            use_neutron_for_format_conversion,
            intermediates_dir,
            dump_kernel_selection_code,
            name,
        )
        return self

    def build(self) -> list[CompileSpec]:
        """Return the compile spec; an empty list where no options were set."""
        return encode(self._delegate) if self._delegate is not None else []


def _delegate_options(
    options: CompileOptions,
    operators_not_to_delegate: Sequence[str] | None,
    use_neutron_for_format_conversion: bool,
    intermediates_dir: str | None,
    dump_kernel_selection_code: bool,
    name: str,
) -> DelegateOptions:
    """Return the options of a compile spec. Raises the errors of ``generate_neutron_compile_spec``."""
    if intermediates_dir is not None and not isinstance(intermediates_dir, str | os.PathLike):
        raise InvalidOptionError(
            f"intermediates_dir: it is {intermediates_dir!r}; it is the path of a folder. Pass operators as "
            "operators_not_to_delegate=..., which ExecuTorch before 1.4 had in this position."
        )
    if intermediates_dir is not None and os.fspath(intermediates_dir).startswith("-"):
        raise InvalidOptionError(
            f"intermediates_dir: '{intermediates_dir}' is a flag, and it is the path of a folder. Pass flags as "
            "extra_flags=..., which ExecuTorch before 1.4 had in this position."
        )
    # Report an unusable value now, and not during lowering.
    converters.get(options.converter).check(options)
    return DelegateOptions(
        options,
        tuple(operators_not_to_delegate or ()),
        use_neutron_for_format_conversion,
        None if intermediates_dir is None else os.fspath(intermediates_dir),
        dump_kernel_selection_code,
        name,
    )


@final
class NeutronBackend(BackendDetails):
    """The ExecuTorch backend. Its id is the name of this class; ExecuTorch's NXP backend has a class of that name too."""

    @classmethod
    def copy_exported_program_for_preprocess(
        cls, edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> ExportedProgram:
        """Return the program itself, since ``preprocess`` only reads it. For a partition of ExecuTorch's NXP backend, return the copy that that backend makes."""
        other = None if _made(edge_program) else _other_backend(compile_specs)
        if other is not None:
            copied: ExportedProgram = other.copy_exported_program_for_preprocess(edge_program, compile_specs)
            return copied
        return edge_program

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        if made_before := _made(edge_program):
            return PreprocessResult(processed_bytes=made_before)
        other = _other_backend(compile_specs)
        if other is not None:
            return other.preprocess(edge_program, compile_specs)
        delegate, lowered, trial, origins = lower_program(edge_program, compile_specs)
        folder = None if delegate.intermediates_dir is None else intermediates_folder(delegate.intermediates_dir)
        name = _tag(edge_program)
        converter = converters.get(delegate.options.converter)
        with in_modules(lambda: layers_of(origins())):
            conversion = converter.convert(lowered.graph, delegate.options, delegate.dump_kernel_selection_code, trial)
        interface = Interface.of(edge_program, lowered)
        made = CompiledPartition(name, lowered.graph, conversion, interface, trial, origins, lowered)
        partition, handles = made.profiled()
        payload = partition.payload
        if folder is not None:
            files.write(partition.intermediates(folder))
        if conversion.kernel_selection is not None:
            files.write({Path(f"_kernel_selection_{name}.c"): conversion.kernel_selection.encode()})
        return PreprocessResult(processed_bytes=payload, debug_handle_map=handles, _delegate_info_meta=partition)

    @classmethod
    def preprocess_multimethod(
        cls, edge_programs: dict[str, list[ExportedProgram]], compile_specs: dict[str, list[list[CompileSpec]]]
    ) -> dict[str, list[PreprocessResult]]:
        """Compile all partitions of all methods, and return the results by method.

        If partitions need more SRAM than the budget, one BudgetError for all of them is raised after the last compile.
        """
        pairs = [
            (program, specs)
            for method, programs in edge_programs.items()
            for program, specs in zip(programs, compile_specs[method], strict=True)
        ]
        compiles = [(partial(cls.preprocess, program, specs), partial(decode, specs)) for program, specs in pairs]
        made = iter(all_compiled(compiles))
        return {method: [next(made) for _ in programs] for method, programs in edge_programs.items()}


PAYLOAD = "openneutron_payload"
"""The key in a node's ``meta`` for the payload of a partition that was compiled before. The node is the partition's only operator."""


def _made(program: ExportedProgram) -> bytes:
    """Return the payload of a partition that was compiled before; no bytes for any other partition."""
    return next((bytes(node.meta[PAYLOAD]) for node in program.graph_module.graph.nodes if PAYLOAD in node.meta), b"")


_STANDS_FOR = "openneutron_stands_for"
"""The name of the attribute that marks the classes that ``claim_name`` made."""


def claim_name() -> None:
    """Let ExecuTorch find this module's NeutronBackend by its name, until another class of that name is defined.

    ExecuTorch uses the last subclass of BackendDetails that has the name of a backend. If its own NXP backend was imported after this
    module, a new class with the methods of this module's class is defined. Partitions of the NXP backend's partitioner are passed on to
    the NXP backend, so that both work in one process.
    """
    last = [item for item in BackendDetails.__subclasses__() if item.__name__ == NeutronBackend.__name__][-1]
    if last is not NeutronBackend and not hasattr(last, _STANDS_FOR):
        body = {name: value for name, value in vars(NeutronBackend).items() if not name.startswith("_")}
        # The attribute ``latest`` keeps the new class alive: __subclasses__ leaves out a class that nothing refers to.
        made = type(NeutronBackend.__name__, (BackendDetails,), {**body, _STANDS_FOR: NeutronBackend})
        NeutronBackend.latest = made


def _other_backend(compile_specs: Sequence[CompileSpec]) -> Any:
    """Return the class NeutronBackend of ExecuTorch's NXP backend for a compile spec that ``encode`` did not make.

    The result is None for a compile spec of ``encode``, and where ExecuTorch's NXP backend is not imported.
    """
    if is_ours(compile_specs):
        return None
    for item in BackendDetails.__subclasses__():
        is_named_alike = item.__name__ == NeutronBackend.__name__
        if is_named_alike and item is not NeutronBackend and not hasattr(item, _STANDS_FOR):
            return item
    return None


def lower_program(
    program: ExportedProgram, specs: Sequence[CompileSpec]
) -> tuple[DelegateOptions, Lowered, Trial | None, Origins]:
    """Return the options of a partition, its lowered graph, the first stages of its compile, and a function that returns the origins of
    the graph's nodes.

    The graph and the first stages are those that the partitioner handed over, if they are for the same program and compile spec. If
    not, the partition is lowered again, and the first stages are None. This can't be refused: the partitioner has lowered the same nodes.
    """
    graph = program.graph_module.graph
    found: list[Handover] = [node.meta[HANDOVER] for node in graph.nodes if HANDOVER in node.meta]
    handover = found[0] if found and found[0].specs == specs else None
    delegate = decode(specs) if handover is None else handover.delegate
    constants = Constants(program)
    inputs = user_inputs(program)
    changes = len(program.graph_signature.buffers_to_mutate)
    states = states_of(program, constants).found if changes else ()
    assert len(states) == changes, "a delegated program changes a buffer that is no state"
    outputs = [node for node in graph.output_node().args[0][changes:] if isinstance(node, Node)]
    units, in_circles = find_units(graph, constants)
    assert not in_circles, "a partition holds units in a circle"
    lowered = None if handover is None else handover.taken(units, constants, inputs, outputs, states)
    trial = None if handover is None or lowered is None else handover.trial
    if lowered is None:
        lowering = Lowering.of(units, constants, delegate.use_neutron_for_format_conversion, states)
        result = lowering if isinstance(lowering, Refusal) else lowering.finished("", inputs, outputs)
        assert not isinstance(result, Refusal), f"{result.node.name} was delegated: {result.reject.reason}"
        lowered = result
    name = graph_name(delegate, _tag(program))
    origins = partial(origins_of, units, lowered)
    return delegate, replace(lowered, graph=replace(lowered.graph, name=name)), trial, origins


def _tag(program: ExportedProgram) -> str:
    tags = [node.meta.get("delegation_tag") for node in program.graph_module.graph.nodes]
    return next((str(tag) for tag in tags if tag), "partition")


def intermediates_folder(name: str) -> Path:
    """Return the path of an existing folder. Raise ValueError where there is no such folder, as ExecuTorch's NXP backend does."""
    folder = Path(name)
    if not folder.is_dir():
        raise ValueError("intermediates_dir is not a directory path.")
    return folder
