# SPDX-License-Identifier: BSD-3-Clause
"""Compile an example network, with the flags of ExecuTorch's ``examples.nxp.aot_neutron_compile``.

``python -m examples.aot_neutron_compile --quantize --delegate -m cifar10`` writes ``cifar10_nxp_delegate.pte``
to the working directory. Data sets and trained weights are not downloaded. Networks have seeded random weights.
Calibration, training and tests use generated inputs, or those of ``--dataset_path``.
"""

from __future__ import annotations

import argparse
import copy
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from executorch.exir import EdgeCompileConfig, EdgeProgramManager, ExecutorchBackendConfig, to_edge_transform_and_lower
from torch.export import export
from torch.fx import GraphModule

from examples import networks
from examples.networks import Network, Samples
from openneutron import targets
from openneutron.api.frame import delegate_calls, in_words
from openneutron.device import files
from openneutron.device.converter import kernel_selections
from openneutron.device.third_party import suppressed
from openneutron.errors import InvalidOptionError, MissingToolError, OpenNeutronError
from openneutron.pytorch.backend.neutron_target_spec import FLAVOR, NeutronTargetSpec, flavor_note
from openneutron.pytorch.edge_passes.neutron_edge_pass_manager import NeutronEdgePassManager
from openneutron.pytorch.edge_passes.remove_additional_quantize_dequantize_nodes_pass import (
    RemoveAdditionalQDQClustersPass,
)
from openneutron.pytorch.edge_passes.remove_io_quant_ops_pass import RemoveIOQuantOpsPass
from openneutron.pytorch.neutron_partitioner import NeutronPartitioner
from openneutron.pytorch.nxp_backend import core_aten_ops_exception_list, generate_neutron_compile_spec
from openneutron.pytorch.quantizer.calibrate import calibrate_and_quantize
from openneutron.pytorch.quantizer.neutron_quantizer import NeutronQuantizer
from openneutron.pytorch.source.exporting import first_line

CHANNELS_LAST_HINT = "HINT: --use_channels_last_dim_order saves the transposes at the inputs and outputs of images."
USER_FAULT = 2


def parser() -> argparse.ArgumentParser:
    """Return the parser for the flags, with the names and defaults of ExecuTorch's example."""
    made = argparse.ArgumentParser(
        prog="python -m examples.aot_neutron_compile", description=(__doc__ or "").split("\n")[0]
    )
    add = made.add_argument
    known = ", ".join(networks.names())
    add("-m", "--model_name", required=True, help=f"{known}, or one of executorch.examples.models.")
    add("-d", "--delegate", action="store_true", help="Run what can run there on the NPU.")
    add("--target", default=targets.DEFAULT, help="The chip; see `openneutron targets`.")
    add("-c", f"--{FLAVOR}", help="Changes nothing; ExecuTorch 1.0 and 1.1 selected a release of NXP's converter.")
    add(
        "--use_new_flow_neutron_c",
        action="store_true",
        help="Changes nothing; ExecuTorch 1.3 selected a flow of NXP's.",
    )
    add("-q", "--quantize", action="store_true", help="Quantize the model to int8.")
    add("--use_qat", action="store_true", help="Train two epochs with quantization simulated, instead of calibrating.")
    add("--use_profiling", action="store_true", help="Record kernel calls at run time, and write an ETRecord.")
    add("-s", "--so_library", metavar="FILE", help="A library of custom operators to load.")
    add("--debug", action="store_true", help="Log the graphs.")
    add(
        "-t",
        "--test",
        action="store_true",
        help="Print how often the model finds the float model's class, from 0 to 1.",
    )
    add("-r", "--remove-quant-io-ops", action="store_true", help="Take and give int8 at inputs and outputs.")
    add(
        "--operators_not_to_delegate", nargs="*", default=[], metavar="NAME", help="Such as aten::convolution aten::mm."
    )
    add("--visualize", choices=["show", "store"], help="Show the program in Model Explorer, or store it for it.")
    add("--use_channels_last_dim_order", action="store_true", help="Take and give images channels innermost.")
    add(
        "--dump_kernel_selection_code",
        action="store_true",
        help="Write C files beside the .pte that register only the kernels it calls.",
    )
    add("--use_random_dataset", action="store_true", help="Use generated inputs, which is the default, without a note.")
    add(
        "-dst", "--dataset_path", metavar="DATA", help="Inputs: a folder of .npy files, a .npz file, or file.py:loader."
    )
    add("--fetch_constants_to_sram", action="store_true", help="Copy constants from flash to SRAM before each use.")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the example with these arguments (the process's own where None). Return the exit code, 2 for a user's
    fault."""
    args = parser().parse_args(arguments)
    if args.debug:
        logging.basicConfig(level=logging.DEBUG, format="%(message)s", force=True)
    try:
        _run(args)
    except OpenNeutronError as error:
        print(f"error: {error}", file=sys.stderr)
        return USER_FAULT
    return 0


def _run(args: argparse.Namespace) -> None:
    spec = NeutronTargetSpec(args.target)
    if args.neutron_converter_flavor is not None:
        print(f"--{FLAVOR}: {flavor_note(args.neutron_converter_flavor)}")
    if args.use_new_flow_neutron_c:
        print("--use_new_flow_neutron_c changes nothing: this project's compiler has one flow.")
    if args.dump_kernel_selection_code:
        kernel_selections.check_target(args.target)
    if args.use_qat and not args.quantize:
        raise InvalidOptionError("--use_qat: it is a way to quantize; give --quantize too.")
    if args.so_library is not None:
        try:
            torch.ops.load_library(args.so_library)
        except OSError as error:
            raise InvalidOptionError(
                f"--so_library: '{args.so_library}' can't be loaded: {first_line(error)}."
            ) from error
    visualize = None if args.visualize is None else _visualizer()
    network = networks.find(args.model_name)
    samples = _samples(args, network)
    inputs = network.inputs
    if args.use_channels_last_dim_order:
        network.module.to(memory_format=torch.channels_last)
        inputs = tuple(x.to(memory_format=torch.channels_last) if x.dim() == 4 else x for x in inputs)
    elif any(x.dim() == 4 for x in inputs):
        print(CHANNELS_LAST_HINT)
    with suppressed(), in_words(network.name, "export"):
        module = export(network.module, inputs).module(check_guards=False)
    if args.quantize:
        with suppressed():
            module = _quantized(args, network, module, samples, spec)
    if args.test:
        kind = "quantized " if args.quantize else ""
        share = networks.agreement(network, module, samples)
        print(f"Accuracy of the {kind}'{network.name}' against the float model, on {len(samples)} inputs: {share:g}")
    with suppressed(), in_words(network.name, "lower"):
        edge, partitioner = _lowered(args, module, inputs, spec)
    if partitioner is not None:
        print(partitioner.delegations[-1])
    logging.debug("%s", edge.exported_program().graph)
    with suppressed(), in_words(network.name, "write"):
        program = edge.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=False))
    stem = f"{network.name}{'_nxp_delegate' if args.delegate else ''}{'_profile' if args.use_profiling else ''}"
    _write(args, stem, program, edge)
    if visualize is not None:
        named = () if args.visualize == "show" else (f"{network.name}-visualization.json",)
        visualize(program.exported_program(), *named)


def _samples(args: argparse.Namespace, network: Network) -> Samples:
    if args.dataset_path is not None:
        return networks.data_set(args.dataset_path, network)
    samples = network.samples()
    if (args.quantize or args.test) and not args.use_random_dataset:
        print(f"Data sets are not downloaded: {len(samples)} generated inputs are used. --dataset_path takes others.")
    return samples


def _quantized(
    args: argparse.Namespace, network: Network, module: GraphModule, samples: Samples, spec: NeutronTargetSpec
) -> GraphModule:
    quantizer = NeutronQuantizer(spec, is_qat=args.use_qat)
    if args.use_qat:
        # A copy: an exported module shares its parameters with the float model, which is the reference of the training.
        module = copy.deepcopy(module)
        return calibrate_and_quantize(
            module, (), quantizer, True, lambda prepared: networks.train(network, prepared, samples)
        )
    return calibrate_and_quantize(module, samples, quantizer)


def _lowered(
    args: argparse.Namespace, module: GraphModule, inputs: tuple[torch.Tensor, ...], spec: NeutronTargetSpec
) -> tuple[EdgeProgramManager, NeutronPartitioner | None]:
    partitioner = None
    if args.delegate:
        compile_spec = generate_neutron_compile_spec(
            args.target,
            operators_not_to_delegate=args.operators_not_to_delegate,
            fetch_constants_to_sram=args.fetch_constants_to_sram,
            use_profiling=args.use_profiling,
        )
        partitioner = NeutronPartitioner(compile_spec, spec, post_quantization_state_dict=module.state_dict())
    edge = to_edge_transform_and_lower(
        export(module, inputs),
        transform_passes=NeutronEdgePassManager(),
        partitioner=[] if partitioner is None else [partitioner],
        generate_etrecord=args.use_profiling,
        compile_config=EdgeCompileConfig(_core_aten_ops_exception_list=core_aten_ops_exception_list),
    )
    if args.remove_quant_io_ops:
        edge = edge.transform([RemoveIOQuantOpsPass(edge_program_manager=edge)])
    return edge.transform(NeutronEdgePassManager([RemoveAdditionalQDQClustersPass()])), partitioner


def _write(args: argparse.Namespace, stem: str, program: Any, edge: EdgeProgramManager) -> None:
    """Write the ``.pte``, and on request its kernel selection and its ETRecord, to the working directory."""
    path = Path(f"{stem}.pte")
    made = {path: bytes(program.buffer)}
    if args.dump_kernel_selection_code:
        parts = [part for _, part in delegate_calls(edge.exported_program().graph_module)]
        programs = {part.name: part.compiled.program for part in parts if part.conversion.compiled}
        if not programs:
            raise InvalidOptionError(
                "--dump_kernel_selection_code: nothing of the model runs on the NPU, so that no kernel is called. Give "
                "--quantize and --delegate."
            )
        made |= kernel_selections.selection_files(kernel_selections.default_path(path), programs)
    files.write(made)
    for file, data in made.items():
        print(f"{file}: {len(data):,} bytes")
    if args.use_profiling:
        record = Path("etrecord") / f"{args.model_name}_etrecord.bin"
        record.parent.mkdir(exist_ok=True)
        with suppressed():
            program.get_etrecord().save(str(record))
        print(record)


def _visualizer() -> Any:
    import importlib
    import importlib.util

    if importlib.util.find_spec("model_explorer") is None:
        raise MissingToolError("--visualize: it takes the package ai-edge-model-explorer, which is not installed.")
    # ExecuTorch imports the adapter under the misspelt name that it had in earlier releases of Model Explorer.
    old, new = (f"model_explorer.pytorch_exported_program_{word}_impl" for word in ("adater", "adapter"))
    if importlib.util.find_spec(old) is None and importlib.util.find_spec(new) is not None:
        sys.modules[old] = importlib.import_module(new)
    from executorch.devtools.visualization.visualization_utils import visualize_with_clusters

    return visualize_with_clusters


if __name__ == "__main__":
    sys.exit(main())
