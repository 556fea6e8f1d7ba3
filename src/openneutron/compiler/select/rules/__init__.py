# SPDX-License-Identifier: BSD-3-Clause
"""The rules of kernel selection: one for each operator, in the file of its family."""

from openneutron.compiler.select.rules import conv, data_movement, elementwise, recurrent, reductions

FAMILIES = (conv, data_movement, elementwise, recurrent, reductions)
