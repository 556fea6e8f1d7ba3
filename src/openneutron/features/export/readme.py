# SPDX-License-Identifier: BSD-3-Clause
"""The texts of an exported folder's README."""

from __future__ import annotations

from collections.abc import Sequence

from openneutron.features.export.c_text import arenas_of_all, init_call, instance_bytes, plain_name
from openneutron.features.export.deployment import Deployment, IoTensor, arenas_of

AXES = {3: "NCW", 4: "NCHW"}
"""PyTorch's letters for the dimensions of a tensor, by rank."""

WORDS = {
    "microcode": "microcode, flash",
    "weights": "weights, flash",
    "arena": "arena, SRAM",
    "tensors": "inputs and outputs, a part of the arena",
    "state": "state between runs, SRAM",
    "instance": "the rest of an instance, SRAM",
}
"""The parts of a model's memory, in words."""


def values(deployments: Sequence[Deployment], kernels: Sequence[str]) -> dict[str, str]:
    """Return the values of the README's placeholders that depend on the models."""
    return {
        "NAME": ", ".join(plain_name(each.name) for each in deployments),
        "MODEL_FILES": ", ".join(f"`{each.prefix}_model.h` and `.c`" for each in deployments),
        "KERNELS": ", ".join(f"`{kernel}`" for kernel in kernels),
        "TENSORS": "\n\n".join(_tensors(each) for each in deployments),
        "TENSOR_WORDS": _tensor_words(deployments),
        "EXAMPLE": _example(deployments[0]),
        "MEMORY": _memory(deployments),
    }


def preprocessing_words(deployment: Deployment, preprocessing: str) -> str:
    """Return the README's paragraph about the preprocessing of the calibration data; an empty string without a
    preprocessing."""
    if not preprocessing:
        return ""
    return (
        f"\n\n{plain_name(deployment.name)} was calibrated on data after the preprocessing `{plain_name(preprocessing)}`. The "
        "application's inputs need the same steps."
    )


def memory(deployment: Deployment) -> dict[str, int]:
    """Return the sizes of a model's memory in bytes by name, without code and stack. ``tensors`` is a part of ``arena``."""
    arenas = arenas_of(deployment).arenas
    return {
        "microcode": sum(len(call.program.microcode) for call in deployment.calls),
        "weights": sum(len(call.program.weights) for call in deployment.calls),
        "arena": sum(each.size for each in arenas),
        "tensors": sum(each.size - each.work for each in arenas),
        "state": deployment.state_bytes,
        "instance": instance_bytes(deployment),
    }


def memory_of_all(deployments: Sequence[Deployment]) -> dict[str, int]:
    """Return the sizes of the memory of several models that share one arena, in bytes, by the names that ``memory``
    has. Equal weights count once. ``tensors`` is that of the model with the largest arena. ``arena`` is the shared
    arena plus the arenas of models with matrix products on the NPU, which are not shared."""
    each = [memory(deployment) for deployment in deployments]
    largest = max(each, key=lambda sizes: sizes["arena"])
    sums = {name: sum(sizes[name] for sizes in each) for name in each[0]}
    arena = sum(arena.size for arena in arenas_of_all(deployments).values())
    arena += sum(sizes["arena"] for sizes, deployment in zip(each, deployments, strict=True) if deployment.has_jobs)
    weights = {call.program.weights for deployment in deployments for call in deployment.calls}
    return {**sums, "weights": sum(map(len, weights)), "arena": arena, "tensors": largest["tensors"]}


def _memory(deployments: Sequence[Deployment]) -> str:
    columns = {plain_name(each.name): memory(each) for each in deployments}
    if len(deployments) > 1:
        columns["all, with one arena"] = memory_of_all(deployments)
    lines = [f"| bytes | {' | '.join(columns)} |", f"| --- |{' ---: |' * len(columns)}"]
    lines += [
        f"| {words} | {' | '.join(str(each[name]) for each in columns.values())} |" for name, words in WORDS.items()
    ]
    return "\n".join(lines)


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
    for kind, tensors in (("input", deployment.inputs), ("output", deployment.outputs)):
        for index, tensor in enumerate(tensors):
            quantization = tensor.quantization
            real = (
                "as stored"
                if quantization is None
                else f"{quantization.scale:.9g} * (stored - {quantization.zero_point})"
            )
            shape = ", ".join(map(str, tensor.shape))
            call = f"`{deployment.prefix}_{kind}(&{deployment.prefix}, {index})`"
            rows.append(f"| {call} | {plain_name(tensor.name)} | {tensor.dtype}[{shape}] | {_order(tensor)} | {real} |")
    return "\n".join(rows)


def _tensor_words(deployments: Sequence[Deployment]) -> str:
    words = []
    tensors = [tensor for each in deployments for tensor in (*each.inputs, *each.outputs)]
    if any(tensor.is_float for tensor in tensors):
        words.append(
            "The model itself has float32, and ExecuTorch quantizes on the CPU. Here `openneutron_quantize` and "
            "`openneutron_dequantize` quantize with the model's scales and ExecuTorch's rounding; they keep the order in memory."
        )
    if any(tensor.is_permuted for tensor in tensors):
        words.append(
            "Where the order in memory differs from that of the shape, `openneutron_to_memory_order` and "
            "`openneutron_from_memory_order` convert elements (floats or stored values) between both orders."
        )
    return "\n".join(words) or "Values are passed as they are stored."


def _text_example(name: str) -> tuple[str, ...]:
    """Return the lines that continue a text, each with the likeliest token."""
    return (
        "/* For each text. prompt has count tokens. */",
        "OpenNeutronText text;",
        f"openneutron_text_begin(&text, &{name}.openneutron, &{name}_text);",
        "if (error == ENONE) error = openneutron_text_read(&text, prompt, count);",
        "while (error == ENONE && openneutron_text_left(&text) > 0) {",
        "    const uint32_t token = openneutron_text_likeliest(&text);",
        f"    if (openneutron_text_is_end(&{name}_text, token)) break;",
        "    use(token);",
        "    error = openneutron_text_read(&text, &token, 1);",
        "}",
        "if (error != ENONE) puts(openneutron_error_text(error));",
    )


def _example(deployment: Deployment) -> str:
    name, macro = deployment.prefix, deployment.prefix.upper()
    own = " ".join(
        f"Memory of your own: static OPENNEUTRON_ALIGNED uint8_t {each.name}[{macro}_{each.name.upper()}_BYTES]."
        for each in arenas_of(deployment).arenas
    )
    own = "The arena is in memory of NXP's driver." if deployment.has_jobs else own
    lines = [
        '#include "openneutron_models.h"',
        "",
        f"static {name}_instance {name};",
        "",
        f"/* Once. {own} */",
        f"NeutronError error = {init_call(deployment, name)};",
        "",
    ]
    if deployment.language is not None:
        return "\n".join((*lines, *_text_example(name)))
    lines.append("/* For each run. */")
    for index, tensor in enumerate(deployment.inputs):
        if tensor.is_float:
            lines.append(
                f"openneutron_quantize(&{name}_model.inputs[{index}], values{index}, {name}_input(&{name}, {index}));"
            )
        else:
            lines.append(f"memcpy({name}_input(&{name}, {index}), values{index}, {macro}_INPUT{index}_BYTES);")
    lines += [f"if (error == ENONE) error = {name}_invoke(&{name});"]
    lines += ["if (error != ENONE) puts(openneutron_error_text(error));"]
    for index, tensor in enumerate(deployment.outputs):
        if tensor.is_float:
            lines.append(
                f"openneutron_dequantize(&{name}_model.outputs[{index}], {name}_output(&{name}, {index}), results{index});"
            )
        else:
            lines.append(f"memcpy(results{index}, {name}_output(&{name}, {index}), {macro}_OUTPUT{index}_BYTES);")
    return "\n".join(lines)
