# SPDX-License-Identifier: BSD-3-Clause
"""Collect the second moments of the inputs of linear layers, for quantization with calibration texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from openneutron.errors import InvalidOptionError
from openneutron.language.quantization import Doubles
from openneutron.language.repair import Judged
from openneutron.pytorch.language.tensors import missing_package


def read_texts(texts: Sequence[Sequence[int]]) -> list[dict[str, torch.Tensor]]:
    """Return the arguments of a causal language model that reads texts, which are lists of tokens."""
    return [{"input_ids": torch.tensor([list(text)])} for text in texts]


def second_moments(module: Any, given: Iterable[Mapping[str, Any]]) -> dict[str, Doubles]:
    """Return, by the name of each linear module, the sum of the outer products of its input vectors as float64 [K,
    K]. The output head is left out.

    ``given`` has the arguments of each run of the module. If several modules read the same input in a run, its
    product is computed once. Modules that no run reaches have no entry. The module runs in evaluation mode, and gets
    its own mode back.
    """
    sums: dict[str, torch.Tensor] = {}
    seen: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def hook(name: str) -> Any:
        def collect(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            (given,) = inputs
            if id(given) not in seen:
                rows = given.detach().reshape(-1, given.shape[-1]).float()
                # The input is kept, so that no other tensor gets its id during this text.
                seen[id(given)] = given, (rows.T @ rows).double()
            moments = seen[id(given)][1]
            sums[name] = moments if name not in sums else sums[name] + moments

        return collect

    head = module.get_output_embeddings()
    hooks = [
        each.register_forward_pre_hook(hook(name))
        for name, each in module.named_modules()
        if (isinstance(each, torch.nn.Linear) or type(each).__name__ == "Conv1D") and each is not head
    ]
    was_training = module.training
    try:
        with torch.no_grad():
            module.eval()
            for arguments in given:
                seen.clear()
                module(**arguments, use_cache=False)
    finally:
        module.train(was_training)
        for each in hooks:
            each.remove()
    return {name: tensor.numpy() for name, tensor in sums.items()}


def judged(model: Any, texts: Sequence[Sequence[int]]) -> list[Judged]:
    """Return texts with the logits that a module has for them."""
    with torch.no_grad():
        return [
            Judged(text, model(**arguments, use_cache=False).logits[0].float().numpy())
            for text, arguments in zip(texts, read_texts(texts), strict=True)
        ]


def opened(model: Any) -> Any:
    """Return a module of transformers, or that of a folder. Raises InvalidOptionError for other forms of a model."""
    if isinstance(model, torch.nn.Module):
        return model
    if not isinstance(model, (str, Path)) or not Path(model).is_dir():
        raise InvalidOptionError(
            "calibration: it takes a module of transformers or a folder; other forms have no module that computes the texts."
        )
    try:
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise missing_package("Calibration", error) from None
    return AutoModelForCausalLM.from_pretrained(str(model), dtype=torch.float32, local_files_only=True)


def check_texts(texts: Sequence[Sequence[int]], most: int, vocabulary: int, option: str = "calibration") -> None:
    """Raise InvalidOptionError where there is no text, and for texts that a model of ``most`` positions and
    ``vocabulary`` tokens cannot read."""
    if not len(texts):
        raise InvalidOptionError(f"{option}: it has no text; a few texts of some hundred tokens are enough.")
    for number, text in enumerate(texts):
        tokens = np.asarray(text)
        if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
            raise InvalidOptionError(
                f"{option}: text {number} is no list of tokens, which are integers. Encode it with the model's tokenizer."
            )
        if not 1 <= len(tokens) <= most:
            raise InvalidOptionError(f"{option}: text {number} has {len(tokens)} tokens; this model reads 1 to {most}.")
        if tokens.min() < 0 or tokens.max() >= vocabulary:
            wrong = int(tokens.min() if tokens.min() < 0 else tokens.max())
            raise InvalidOptionError(
                f"{option}: text {number} has the token {wrong}; the model's vocabulary has 0 to {vocabulary - 1}. Use the model's tokenizer."
            )
