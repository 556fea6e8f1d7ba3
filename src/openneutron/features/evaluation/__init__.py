# SPDX-License-Identifier: BSD-3-Clause
"""The evaluation of a model on a data set, sample by sample: in float, in int8 on the CPU, and on the simulated NPU."""

from openneutron.features.evaluation.results import Evaluation

__all__ = ["Evaluation"]
