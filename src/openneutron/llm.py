# SPDX-License-Identifier: BSD-3-Clause
"""Language models: from transformers or a GGUF file to a ``.pte`` that generates text.

Example:

```python
import openneutron.llm

openneutron.llm.export("SmolLM-135M", target="imx95", bits=4, context=2048).save("model.pte")
```
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openneutron.compiler import Compiled
from openneutron.device.files import write
from openneutron.device.third_party import needs_pytorch
from openneutron.language.decoder import Decoder
from openneutron.language.generation import TOKENIZER, identity
from openneutron.language.model import Interface
from openneutron.language.program import Plan, check_chunk, compiled
from openneutron.language.times import chooser
from openneutron.options import CompileOptions
from openneutron.targets import described, host_alone, host_with_jobs

__all__ = ["Exported", "export"]


@dataclass(frozen=True, slots=True, eq=False)
class Exported:
    """A language model as a ``.pte``: the bytes of the file, the decoder with quantized weights, and the compiled program."""

    pte: bytes = field(repr=False)
    decoder: Decoder
    compiled: Compiled = field(repr=False)

    def save(self, path: str | Path) -> None:
        """Write the ``.pte``."""
        write({Path(path): self.pte})


def export(
    model: Any,
    *,
    target: str = "imx95",
    context: int = 2048,
    chunk: int = 128,
    bits: int = 8,
    group: int = 32,
    head_bits: int = 8,
    config: Any = None,
    calibration: Sequence[Sequence[int]] | None = None,
    gptq: bool = True,
    awq: bool = True,
    repair: float | None = None,
    seed: int = 0,
    name: str | None = None,
    tokenizer: str | Path | None = None,
) -> Exported:
    """Return a causal language model as a ``.pte``, for ``openneutron generate`` and for ExecuTorch's ``TextLLMRunner``.

    * ``model``: a module of transformers (Llama, SmolLM, Mistral, Qwen2, Qwen3, Gemma, Phi, GPT-2), a folder with config.json and safetensors
      files, a ``.gguf`` file, a state dict with its ``config``, or None for random weights of a ``config``.
    * ``context``: the number of positions in the cache. ``chunk``: the largest number of tokens in a run.
    * ``bits``: 8, or 4 for weights in groups of ``group`` columns. ``head_bits``: the same for embedding and head.
    * ``calibration``: texts, each as a list of tokens. With them, weights are rounded as in GPTQ if ``gptq``, and input channels are scaled as
      in AWQ if ``awq``.
    * ``repair``: the largest allowed KL divergence from the float model, in nats per token. It is measured on every fourth text. Layers of 4
      bits get 8 bits until the bound holds; ``decoder.repair`` has the result.
    * ``tokenizer``: the model's tokenizer.json, by default the one in the model's folder. ``generate`` then refuses any other tokenizer.

    If the target has an NPU that multiplies matrices, the modelled time decides which products the NPU computes. On other targets the host core
    computes the whole model.

    Raises InvalidTargetError, InvalidModelError and InvalidOptionError before weights are read, InvalidModelError also
    for weights that are not finite, and MissingToolError if a package is not installed.
    """
    chip = described(target)
    if chip.cpu is None:
        chip = host_alone(chip) if chip.jobs is None else host_with_jobs(chip)
    with needs_pytorch("A language model"):
        from openneutron.pytorch.language.decoder import decoder_of
        from openneutron.pytorch.language.package import packaged
    words = _tokenizer_of(model) if tokenizer is None else Path(tokenizer)
    known = None if words is None else identity(words)
    check_chunk(chunk, context)
    decoder = decoder_of(
        model,
        context=context,
        config=config,
        bits=bits,
        group=group,
        head_bits=head_bits,
        calibration=calibration,
        gptq=gptq,
        awq=awq,
        repair=repair,
        seed=seed,
        name=name,
    )
    made = compiled(decoder, chip, Plan(chunk, chooser(chip, chunk)), CompileOptions(target=chip.name))
    interface = Interface(chunk, context, decoder.vocabulary, decoder.begin_token, decoder.end_tokens, tokenizer=known)
    return Exported(packaged(made.program, interface), decoder, made)


def _tokenizer_of(model: Any) -> Path | None:
    """Return the path of the tokenizer.json in a model's folder; None if there is none."""
    place = Path(model) / TOKENIZER if isinstance(model, str | Path) else None
    return place if place is not None and place.is_file() else None
