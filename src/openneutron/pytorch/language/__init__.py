# SPDX-License-Identifier: BSD-3-Clause
"""Causal language models of transformers, and GGUF files, as quantized decoders."""
