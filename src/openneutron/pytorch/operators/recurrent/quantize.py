# SPDX-License-Identifier: BSD-3-Clause
"""Annotation rules of recurrent layers: a scale for each weight of each gate; biases in units of the products they are added to."""

from __future__ import annotations

from collections.abc import Iterator

from torch.fx import Node

from openneutron.pytorch.operators.annotations import AnnotationRule, Kept
from openneutron.pytorch.operators.recurrent import layers


def _products(node: Node) -> Iterator[tuple[Node, Node | None]]:
    """Yield each weight of the layer with the bias in units of the input's scale times the weight's."""
    _, of_input, of_hidden, biases, *_ = node.args
    yield from zip(of_input, biases or [None] * len(of_input), strict=True)
    yield from ((weight, None) for weight in of_hidden)


def _lstm_products(node: Node) -> Iterator[tuple[Node, Node | None]]:
    yield from _products(node)
    if _is_projected(node):
        yield node.args[4], None


def _is_projected(node: Node) -> bool:
    return isinstance(node.args[4], Node)


def _any(_node: Node) -> bool:
    return True


RULES = {
    f"{layers.NAMESPACE}.lstm.default": AnnotationRule(products=_lstm_products, int8_alone=_is_projected),
    f"{layers.NAMESPACE}.lstm_states.default": AnnotationRule(
        (0, 5),
        products=_lstm_products,
        state=5,
        int8_alone=_any,
        kept=Kept(argument=6, result=2, scale=layers.cell_scale),
    ),
    f"{layers.NAMESPACE}.gru.default": AnnotationRule((0, 5), products=_products, state=5, int8_alone=_any),
    f"{layers.NAMESPACE}.rnn.default": AnnotationRule((0, 5), products=_products, state=5, int8_alone=_any),
}
