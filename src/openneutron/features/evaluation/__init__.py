# SPDX-License-Identifier: BSD-3-Clause
"""A model's accuracy on a data set: in float, in int8 on the CPU and on the simulated NPU, sample by sample."""

from openneutron.features.evaluation.results import Evaluation

__all__ = ["Evaluation"]
