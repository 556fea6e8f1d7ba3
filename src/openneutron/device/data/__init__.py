# SPDX-License-Identifier: BSD-3-Clause
"""Data as people have it: folders of pictures, sounds and arrays, loaders and datasets, as samples for a model's inputs."""

from openneutron.device.data.samples import Label, ModelInput, Sample, Source, describe
from openneutron.device.data.sources import check, source

__all__ = ["Label", "ModelInput", "Sample", "Source", "check", "describe", "source"]
