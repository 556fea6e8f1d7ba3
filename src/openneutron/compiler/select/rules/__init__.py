# SPDX-License-Identifier: BSD-3-Clause
"""Select the kernel calls of a node: a rule for each operator, in the module of its family."""

from openneutron.compiler.select.rules import conv, data_movement, elementwise, recurrent, reductions

FAMILIES = (conv, data_movement, elementwise, recurrent, reductions)
