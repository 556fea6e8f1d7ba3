# SPDX-License-Identifier: BSD-3-Clause
"""Stock models through LiteRT's own interpreter and its reference kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from openneutron.errors import InvalidModelError


def interpret(model: bytes, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a model, in its order, on one thread. An input whose shape is not the model's resizes it.

    Raises InvalidModelError, with LiteRT's words, where the interpreter can't run it.
    """
    try:
        interpreter = Interpreter(
            model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1
        )
        details = interpreter.get_input_details()
        for detail, value in zip(details, inputs, strict=True):
            if tuple(detail["shape"]) != value.shape:
                interpreter.resize_tensor_input(detail["index"], value.shape)
        interpreter.allocate_tensors()
        for detail, value in zip(details, inputs, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]
    except (RuntimeError, ValueError) as error:
        words = " ".join(str(error).split())
        raise InvalidModelError(f"LiteRT's interpreter can't run the operators on the CPU: {words}") from error
