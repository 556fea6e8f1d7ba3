# SPDX-License-Identifier: BSD-3-Clause
"""The build systems of bundles, and the texts of a bundle's README."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openneutron.features.export.c_text import Deployment, IoTensor, aligned_sizes, plain_name


@dataclass(frozen=True, slots=True)
class Port:
    """A build system of a bundle.

    The folder ``templates/<name>`` has the files of the build system in ``files``, at their paths in the bundle, and
    the README's section about building in ``BUILD.md``. ``table`` has the README's table rows about these files.
    """

    name: str
    words: str
    table: str
    memory: str
    options: str
    """The place where options are given, in words."""
    executorch: str
    """The template of the README's section about ExecuTorch's own runtime."""
    next_step: str
    """The command to type next, where ``{folder}`` is the bundle's folder."""
    includes: tuple[str, ...] = ()
    """Other ports whose files are part of the bundle; a file of this port replaces theirs."""


CORTEX_M33 = Port(
    name="cortex_m33",
    words=" for a Cortex-M33 with a GNU toolchain and CMake",
    table="| `port/` | toolchain file, start code, linker script and semihosting for QEMU's mps2-an505 |",
    memory="The example prints the used memory. The build ends with a table of flash, SRAM and stack of the linked code.",
    options="given to CMake as `-DNAME=VALUE`",
    executorch="cortex_m33/EXECUTORCH.md",
    next_step="cmake -S {folder} -B {folder}/build && cmake --build {folder}/build --target run",
)

ZEPHYR = Port(
    name="zephyr",
    words=" as a Zephyr module",
    table="| `zephyr/` | the module: `module.yml`, `CMakeLists.txt`, `Kconfig`, Zephyr's clock for the driver |\n"
    "| `samples/selfcheck/` | an application that checks the model |",
    memory="Zephyr's targets `rom_report` and `ram_report` print the sizes of the linked code.",
    options="given in `prj.conf` as `CONFIG_NAME=VALUE`",
    executorch="EXECUTORCH.md",
    next_step="west build -b BOARD {folder}/samples/selfcheck",
)

MCUXPRESSO = Port(
    name="mcuxpresso",
    words=" as a component of the MCUXpresso SDK",
    table="| `mcux/` | the component: `module.yml`, `CMakeLists.txt`, `Kconfig` |",
    memory="The SDK's build ends with the used part of each memory region of the linked code.",
    options="given in `prj.conf` as `CONFIG_NAME=VALUE`",
    executorch="EXECUTORCH.md",
    next_step="west build -b BOARD {folder}/example --toolchain armgcc -Dcore_id=CORE",
)

MCXN947 = Port(
    name="mcxn947",
    words=" for the MCX N947 with CMake, Zephyr or the MCUXpresso SDK",
    table="\n".join((CORTEX_M33.table, ZEPHYR.table, MCUXPRESSO.table))
    + "\n| `port/mcxn947.ld`, `port/chip.cmake` | the memory of the chip, and an image linked for it |\n"
    "| `samples/selfcheck/boards/` | the memory and the floating-point unit of `frdm_mcxn947` for Zephyr |",
    memory="The example prints the used memory. The CMake build ends with a table of flash, SRAM and stack of the code linked for the chip.",
    options="given to CMake as `-DNAME=VALUE`, in `prj.conf` as `CONFIG_NAME=VALUE`",
    executorch="cortex_m33/EXECUTORCH.md",
    next_step="cmake -S {folder} -B {folder}/build && cmake --build {folder}/build --target run",
    includes=("cortex_m33", "zephyr", "mcuxpresso"),
)

PORTS = {port.name: port for port in (CORTEX_M33, ZEPHYR, MCUXPRESSO, MCXN947)}
"""The ports by name, the default port first."""


CONTEXT_BYTES = 32
"""The bytes of a program's context: NEUTRON_MODEL_CONTEXT_SIZE of NeutronDriver.h with 32-bit pointers, rounded up to a
multiple of 16."""

AXES = {3: "NCW", 4: "NCHW"}
"""PyTorch's letters for the dimensions of a tensor, by rank."""


def values(deployment: Deployment, kernels: Sequence[str]) -> dict[str, str]:
    """Return the values of the README's placeholders that depend on the model."""
    sizes = memory(deployment)
    return {
        "NAME": plain_name(deployment.name),
        "KERNELS": ", ".join(f"`{kernel}`" for kernel in kernels),
        "TENSORS": _tensors(deployment),
        "TENSOR_WORDS": _tensor_words(deployment),
        "EXAMPLE": _example(deployment),
        "WEIGHTS_PLACE": "flash, fetched to SRAM before use" if sizes["prefetch"] else "flash (read in place)",
        **{name.upper(): str(size) for name, size in sizes.items()},
    }


def preprocessing_words(preprocessing: str) -> str:
    """Return the README's paragraph about the preprocessing of the calibration data; an empty string without a
    preprocessing."""
    if not preprocessing:
        return ""
    return (
        f"\n\nThe model was calibrated on data after the preprocessing `{plain_name(preprocessing)}`. The application's inputs need "
        "the same steps."
    )


def memory(deployment: Deployment) -> dict[str, int]:
    """Return the sizes of a deployment's memory in bytes by name, without code and stack."""
    others = sum(aligned_sizes(deployment))
    others += (deployment.largest("profile_size") + CONTEXT_BYTES) * len(deployment.calls)
    return {
        "microcode": sum(len(call.program.microcode) for call in deployment.calls),
        "weights": sum(len(call.program.weights) for call in deployment.calls),
        "arena": deployment.largest("scratch_size"),
        "prefetch": deployment.largest("prefetch_size"),
        "state": deployment.state_bytes,
        "others": others,
        "callers": sum(tensor.size_bytes for tensor in (*deployment.inputs, *deployment.outputs)),
    }


def _order(tensor: IoTensor) -> str:
    names = AXES.get(len(tensor.shape))
    if not tensor.is_permuted:
        return (
            "as written" if names is None else f"as written ({names} of PyTorch's)" if tensor.is_float else "as written"
        )
    if names is None:
        return "dimensions " + ", ".join(map(str, tensor.order))
    return "".join(names[axis] for axis in tensor.order) + " (channels innermost)"


def _tensors(deployment: Deployment) -> str:
    rows = [
        "| tensor | name | type and shape | in memory | real value |",
        "| --- | --- | --- | --- | --- |",
    ]
    for kind, tensors in (("inputs", deployment.inputs), ("outputs", deployment.outputs)):
        for index, tensor in enumerate(tensors):
            quantization = tensor.quantization
            real = (
                "as stored"
                if quantization is None
                else f"{quantization.scale:.9g} * (stored - {quantization.zero_point})"
            )
            shape = ", ".join(map(str, tensor.shape))
            rows.append(
                f"| `{kind}[{index}]` | {plain_name(tensor.name)} | {tensor.dtype}[{shape}] | {_order(tensor)} | {real} |"
            )
    return "\n".join(rows)


def _tensor_words(deployment: Deployment) -> str:
    words = []
    tensors = (*deployment.inputs, *deployment.outputs)
    if any(tensor.is_float for tensor in tensors):
        words.append(
            "The model itself has float32, and ExecuTorch quantizes on the CPU. Here `openneutron_quantize_input` and "
            "`openneutron_dequantize_output` quantize with the model's scales and ExecuTorch's rounding; they keep the order in memory."
        )
    if any(tensor.is_permuted for tensor in tensors):
        words.append(
            "Where the order in memory differs from that of the shape, `openneutron_arrange_input` and "
            "`openneutron_arrange_output` convert elements (floats or stored values) between both orders."
        )
    return "\n".join(words) or "Values are passed as they are stored."


def _example(deployment: Deployment) -> str:
    inputs = ", ".join(f"input{index}" for index in range(len(deployment.inputs)))
    outputs = ", ".join(f"output{index}" for index in range(len(deployment.outputs)))
    lines = ['#include "openneutron.h"', ""]
    for kind, tensors in (("input", deployment.inputs), ("output", deployment.outputs)):
        for index, tensor in enumerate(tensors):
            kind_c = {"bool": "bool", "float32": "float"}.get(tensor.dtype, f"{tensor.dtype}_t")
            lines.append(f"static {kind_c} {kind}{index}[{tensor.elements}];")
    lines += [
        "",
        "NeutronError error = openneutron_init(); /* once */",
        f"const void *inputs[OPENNEUTRON_INPUT_COUNT] = {{{inputs}}};",
        f"void *outputs[OPENNEUTRON_OUTPUT_COUNT] = {{{outputs}}};",
    ]
    helped = [index for index, tensor in enumerate(deployment.inputs) if tensor.is_float]
    lines += [
        f"openneutron_quantize_input({index}, values{index}, input{index}); /* float to {deployment.inputs[index].dtype} */"
        for index in helped
    ]
    lines += ["if (error == ENONE) error = openneutron_run(inputs, outputs);"]
    lines += ["if (error != ENONE) puts(openneutron_error_text(error));"]
    helped = [index for index, tensor in enumerate(deployment.outputs) if tensor.is_float]
    lines += [
        f"openneutron_dequantize_output({index}, output{index}, results{index}); /* {deployment.outputs[index].dtype} to float */"
        for index in helped
    ]
    return "\n".join(lines)
