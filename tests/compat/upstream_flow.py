# SPDX-License-Identifier: BSD-3-Clause
"""A program of its own: CifarNet through the unmodified executorch.backends.nxp, compiled by openneutron.features.compat.

    python upstream_flow.py FOLDER

Leaves in FOLDER the partition's .tflite files, the kernel selection, model.pte, and inputs.npy and outputs.npy of the quantized module;
spawned.tflite, the same partition converted once more by its NeutronConverterManager, in a child that starts afresh; and ours.pte, of
openneutron.compile in the same process, and again.pte, of the other front end after that.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
from pathlib import Path

import numpy as np
import torch

import openneutron
from openneutron.features.compat import eiq_neutron_sdk

MODEL = "cifarnet"


def main(folder: Path) -> None:
    multiprocessing.set_start_method("fork")
    eiq_neutron_sdk.install()
    import executorch.extension.pybindings.portable_lib
    import executorch.kernels.quantized  # noqa: F401
    from executorch.backends.nxp.backend.neutron_converter_manager import NeutronConverterManager
    from executorch.backends.nxp.backend.neutron_target_spec import NeutronTargetSpec
    from executorch.backends.nxp.edge_passes.neutron_edge_pass_manager import NeutronEdgePassManager
    from executorch.backends.nxp.edge_passes.remove_additional_quantize_dequantize_nodes_pass import (
        RemoveAdditionalQDQClustersPass,
    )
    from executorch.backends.nxp.neutron_partitioner import NeutronPartitioner
    from executorch.backends.nxp.nxp_backend import core_aten_ops_exception_list, generate_neutron_compile_spec
    from executorch.backends.nxp.quantizer.neutron_quantizer import NeutronQuantizer
    from executorch.backends.nxp.quantizer.utils import calibrate_and_quantize
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower

    from openneutron.pytorch.source import models

    os.chdir(folder)
    torch.set_num_threads(1)
    model, example = models.get(MODEL)
    samples = models.samples(MODEL, 4)
    target = NeutronTargetSpec("imxrt700")
    exported = torch.export.export(model, example, strict=True)
    quantized = calibrate_and_quantize(exported, samples, NeutronQuantizer(target))
    spec = generate_neutron_compile_spec(
        "imxrt700", intermediates_dir=str(folder), dump_kernel_selection_code=True, use_profiling=True
    )

    def lowered() -> bytes:
        edge = to_edge_transform_and_lower(
            torch.export.export(quantized, example, strict=True),
            transform_passes=NeutronEdgePassManager(),
            partitioner=[NeutronPartitioner(spec, target, post_quantization_state_dict=quantized.state_dict())],
            compile_config=EdgeCompileConfig(_core_aten_ops_exception_list=core_aten_ops_exception_list),
        )
        edge = edge.transform(NeutronEdgePassManager([RemoveAdditionalQDQClustersPass()]))
        return bytes(edge.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=False)).buffer)

    logging.basicConfig(filename=folder / "backend.log", level=logging.INFO, force=True)
    (folder / "model.pte").write_bytes(lowered())
    logging.basicConfig(level=logging.WARNING, force=True)
    (pure,) = folder.glob("tag*_pure.et.tflite")
    multiprocessing.set_start_method("spawn", force=True)
    spawned = NeutronConverterManager().convert(pure.read_bytes(), "imxrt700", "tag", use_profiling=True)
    (folder / "spawned.tflite").write_bytes(spawned)
    multiprocessing.set_start_method("fork", force=True)
    # Both front ends in one process, each with a class of the same name.
    ours = openneutron.compile(model, example, calibration=samples)
    assert len(ours.partitions) == 1
    (folder / "ours.pte").write_bytes(ours.buffer)
    (folder / "again.pte").write_bytes(lowered())
    np.save(folder / "inputs.npy", np.stack([sample[0].numpy() for sample in samples]))
    np.save(folder / "outputs.npy", np.stack([quantized(*sample).detach().numpy() for sample in samples]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
