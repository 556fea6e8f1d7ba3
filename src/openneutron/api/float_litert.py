# SPDX-License-Identifier: BSD-3-Clause
"""Quantize the float ``.tflite`` of a compile."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from openneutron.compiler.legalize.partition import operator_title
from openneutron.device import data
from openneutron.device.data import ModelInput, Source
from openneutron.device.timings import advance, step
from openneutron.errors import InvalidOptionError
from openneutron.ir import Graph
from openneutron.litert import LiteRTModel
from openneutron.litert.quantizing import as_float, check_installed, quantized
from openneutron.options import FLOAT32, DataOptions, Request

OPTIONS = ("activations", "io_dtype", "keep_float")
"""The quantization options that apply to a float ``.tflite``."""

RANDOM_SAMPLES = 32
"""The number of random inputs with which a model without calibration data is calibrated, as of the built-in models."""


def inputs_of(graph: Graph) -> tuple[ModelInput, ...]:
    """Return the shapes, types and quantization parameters of the inputs of a LiteRT file."""
    return tuple(
        ModelInput(
            tensor.shape,
            tensor.dtype.numpy,
            None if tensor.quant is None or tensor.quant.per_channel else tensor.quant,
            channels_last=True,
        )
        for tensor in (graph[name] for name in graph.inputs)
    )


def random_samples(graph: Graph) -> list[tuple[np.ndarray, ...]]:
    """Return random inputs of a float model: normal numbers, and 0 for integers, which may be indices."""
    generator = np.random.default_rng(0)
    return [
        tuple(
            generator.standard_normal(each.shape).astype(each.dtype)
            if each.dtype.kind == "f"
            else np.zeros(each.shape, each.dtype)
            for each in inputs_of(graph)
        )
        for _ in range(RANDOM_SAMPLES)
    ]


def source_of(given: Any, graph: Graph, options: DataOptions, option: str) -> Source:
    """Return calibration samples for a float model. Raises as ``device.data.source`` does."""
    return data.source(
        given,
        inputs_of(graph),
        preprocess=options.preprocess,
        sample_rate=options.sample_rate,
        limit=options.calibration_samples,
        option=option,
    )


def quantize(request: Request) -> LiteRTModel:
    """Return the float model of a request as AI Edge Quantizer quantizes it.

    Raises InvalidOptionError for a request without calibration samples, or for unusable samples, ``keep_float`` or
    ``io_dtype``, InvalidModelError where the model can't be quantized, and MissingToolError where AI Edge Quantizer
    is not installed.
    """
    model: LiteRTModel = request.model
    quantization = request.quantization
    check_installed(request.name)
    if request.calibration is None:
        raise InvalidOptionError(
            "calibration: there are no samples; int8 scales come from typical inputs. "
            "Pass calibration=[...], each item the model's input or a tuple of its inputs."
        )
    given = request.calibration
    samples = given if isinstance(given, Source) else source_of(given, model.graph, request.data, "calibration")
    floats = _kept(model.graph, quantization.keep_float, request.name)
    io_dtype, activations = quantization.io_dtype, quantization.activations
    if io_dtype not in (FLOAT32, activations):
        raise InvalidOptionError(
            f"io_dtype: it is {io_dtype}; activations of '{request.name}' are {activations}. Choose {FLOAT32} or {activations}."
        )
    with step("Quantizing", samples.count or 0):
        return quantized(
            as_float(model, request.name),
            _arrays(samples),
            request.name,
            activations,
            io_dtype != FLOAT32,
            floats,
        )


def _arrays(samples: Source) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield the inputs of each sample."""
    count = samples.count or 0
    for done, sample in enumerate(samples, 1):
        yield sample.arrays
        advance(done, max(done, count))


def _kept(graph: Graph, names: Any, name: str) -> list[int]:
    """Return the indices of the operators in ``graph`` that stay float.

    ``names`` are patterns with wildcards. They match operators (``SOFTMAX``) and output tensors. ``name`` is the
    model's, for the message. Raises InvalidOptionError for a pattern that matches nothing.
    """
    found: dict[int, None] = {}
    for pattern in names:
        own = [
            place
            for place, node in enumerate(graph.nodes)
            if any(fnmatchcase(title, str(pattern)) for title in (operator_title(node), *node.outputs))
        ]
        if not own:
            raise InvalidOptionError(
                f"keep_float: '{pattern}' is neither an operator nor an output of one in '{name}'. It has "
                f"{', '.join(dict.fromkeys(map(operator_title, graph.nodes)))}."
            )
        found |= dict.fromkeys(own)
    return list(found)
