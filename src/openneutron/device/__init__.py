# SPDX-License-Identifier: BSD-3-Clause
"""The surroundings of the compiler on this machine: simulator, converters, ``.pte`` files, cache, samples for a model's
inputs."""
