# SPDX-License-Identifier: BSD-3-Clause
"""Graphs of quantized operators with LiteRT's semantics: NHWC activations, LiteRT's operator names and attributes."""

from openneutron.ir.graph import DType, Graph, Node, QuantParams, State, Tensor, constant, per_channel, per_tensor

__all__ = ["DType", "Graph", "Node", "QuantParams", "State", "Tensor", "constant", "per_channel", "per_tensor"]
