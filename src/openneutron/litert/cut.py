# SPDX-License-Identifier: BSD-3-Clause
"""Stock models cut out of a file: some of its operators, for LiteRT's interpreter to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from openneutron.litert.prune import copied, prune
from openneutron.litert.read import operator_name
from openneutron.litert.write import pack

CALLING = ("CALL", "CALL_ONCE", "IF", "WHILE", "STABLEHLO_REDUCE", "STABLEHLO_REDUCE_WINDOW", "STABLEHLO_SCATTER",
           "STABLEHLO_SORT", "STABLEHLO_WHILE", "STABLEHLO_COMPOSITE")  # fmt: skip
"""Operators that run another subgraph of their file."""


def cut(model: Any, operators: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
    """A model of these operators of the main graph; ``inputs`` and ``outputs`` are its tensors, by their places.

    The other subgraphs come along where one of the operators runs one. Signatures and metadata stay behind.
    """
    new = copied(model)
    main = new.subgraphs[0]
    main.operators = [main.operators[place] for place in operators]
    main.inputs = np.array(inputs, np.int32)
    main.outputs = np.array(outputs, np.int32)
    if not any(operator_name(model, operator) in CALLING for operator in main.operators):
        new.subgraphs = [main]
    new.signatureDefs = None
    new.metadata = None
    new.metadataBuffer = None
    return pack(prune(new))
