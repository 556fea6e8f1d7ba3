# SPDX-License-Identifier: BSD-3-Clause
"""A language model in a ``.pte``: the facts that its methods state, and runs of its program on the simulated NPU without ExecuTorch.

The method ``forward`` takes ``tokens`` (int64 [1, n], n from 1 to ``rows``) and ``start_pos`` (int64 [1]), and returns the logits of the last
token (float32 [1, vocabulary]). The other methods are those that ExecuTorch's ``TextLLMRunner`` reads; each returns a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from openneutron.device import pte
from openneutron.device.simulator import Simulator
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.isa import Microcode, Program
from openneutron.isa.payload import Format, Payload, parse
from openneutron.language.times import Work, work_of
from openneutron.targets import with_checksum

Floats = npt.NDArray[np.float32]

FORMATS = (Format.LEADING, Format.SPAN)
"""The formats of a language model's inputs, tokens and span."""

ROWS, CONTEXT, VOCABULARY = "get_max_seq_len", "get_max_context_len", "get_vocab_size"
BEGIN, ENDS = "get_bos_id", "get_eos_ids"


@dataclass(frozen=True, slots=True)
class Interface:
    """The facts about a language model that its user needs.

    * ``rows``: the most tokens of a run.
    * ``context``: the positions of the cache.
    * ``begin_token``: the token that begins a text, or None; ``end_tokens``: the tokens that end one.
    """

    rows: int
    context: int
    vocabulary: int
    begin_token: int | None = None
    end_tokens: tuple[int, ...] = ()

    def methods(self) -> dict[str, int | bool | list[int]]:
        """Return the constant methods of the ``.pte`` with their values."""
        made: dict[str, int | bool | list[int]] = {
            ROWS: self.rows,
            CONTEXT: self.context,
            VOCABULARY: self.vocabulary,
            "use_kv_cache": True,
            "use_sdpa_with_kv_cache": False,
            "enable_dynamic_shape": True,
        }
        if self.begin_token is not None:
            made[BEGIN] = self.begin_token
        if self.end_tokens:
            made[ENDS] = list(self.end_tokens)
        return made

    def payload(self, program: Program) -> Payload:
        """Return the delegate payload with the program of this model."""
        return Payload(program, FORMATS, (Format.CONTIGUOUS,), (0, 1), (0,), 2)


def found(data: bytes, name: str) -> tuple[Interface, Program]:
    """Return the interface and the program of the language model in a ``.pte``, whose file has this name in messages.

    Raises InvalidProgramError where the file is damaged, and InvalidModelError where it is no language model.
    """
    methods = pte.methods(data, name)
    facts = {method.name: _numbers(method) for method in methods}
    delegates = [item for method in methods if method.name == pte.FORWARD for item in method.delegates]
    missing = [key for key in (ROWS, CONTEXT, VOCABULARY) if len(facts.get(key, ())) != 1]
    if missing or len(delegates) != 1 or delegates[0].backend != pte.BACKEND_ID:
        what = f"no method '{missing[0]}'" if missing else "more than the program of a decoder"
        raise InvalidModelError(
            f"'{name}' is no language model of this compiler: it has {what}. Make one with openneutron.llm.export."
        )
    payload = parse(delegates[0].payload)
    (rows,), (context,), (vocabulary,) = (facts[key] for key in (ROWS, CONTEXT, VOCABULARY))
    begin = facts.get(BEGIN, ())
    interface = Interface(rows, context, vocabulary, begin[0] if begin else None, facts.get(ENDS, ()))
    if payload.input_formats != FORMATS:
        raise InvalidModelError(
            f"'{name}' is no language model of this compiler: its program takes no tokens with their position. "
            "Make one with openneutron.llm.export."
        )
    return interface, payload.program


def is_language_model(data: bytes, name: str) -> bool:
    """Return whether a ``.pte`` is a language model of this compiler. Raises InvalidProgramError where the file is damaged."""
    try:
        found(data, name)
    except InvalidModelError:
        return False
    return True


def timed_work(microcode: Microcode) -> Work:
    """Return the products and the attention of a program for i.MX 95, whose time is modelled; empty for one of another chip."""
    target = with_checksum(microcode.target)
    cores = target is not None and target.name.startswith(("imx95", "cortex-a55"))
    return work_of(microcode) if cores else ()


def _numbers(method: pte.Method) -> tuple[int, ...]:
    """Return the integers that a constant method returns; none where it is another method."""
    values = [method.values[index] for index in method.outputs]
    constant = not method.inputs and not method.instructions
    return tuple(value for value in values if isinstance(value, int)) if constant else ()


class LanguageModel:
    """A language model that is ready to run. Use it in a ``with`` statement, or call ``close``.

    ``threads`` compute each kernel call together; None: as many as OPENNEUTRON_THREADS says, or 1.

    Raises as ``found`` and ``Simulator`` do.
    """

    def __init__(self, data: bytes, name: str = "model.pte", threads: int | None = None) -> None:
        self.name = name
        self.interface, program = found(data, name)
        self._simulator = Simulator(program, threads=threads)

    @property
    def work(self) -> Work:
        """Return the products and the attention of a program for i.MX 95, whose time is modelled; empty for one of another chip."""
        return timed_work(self._simulator.microcode)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the program. A second call does nothing."""
        self._simulator.close()

    def run(self, tokens: Sequence[int], position: int) -> Floats:
        """Run tokens, the first of which has this position, and return the logits of the last one: float32 [vocabulary].

        The cache has the tokens before ``position``. Raises InvalidOptionError for tokens or positions that the model does not have; the
        cache is then as before.
        """
        facts = self.interface
        if not 1 <= len(tokens) <= facts.rows:
            raise InvalidOptionError(f"'{self.name}': a run of {len(tokens)} tokens; it takes 1 to {facts.rows}.")
        if not 0 <= position <= facts.context - len(tokens):
            raise InvalidOptionError(
                f"'{self.name}': {len(tokens)} tokens from position {position} on; its cache has {facts.context} positions."
            )
        wrong = [token for token in tokens if not 0 <= token < facts.vocabulary]
        if wrong:
            raise InvalidOptionError(
                f"'{self.name}': token {wrong[0]}; its vocabulary has the tokens 0 to {facts.vocabulary - 1}."
            )
        given = np.zeros(facts.rows, np.int64)
        given[: len(tokens)] = tokens
        (logits,) = self._simulator.run([given, np.array([position, len(tokens)], np.int64)])
        return logits.view(np.float32)
