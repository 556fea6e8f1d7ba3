# SPDX-License-Identifier: BSD-3-Clause
"""A language model in a ``.pte``: the facts that its methods state, and runs of its program on the simulated NPU without ExecuTorch.

The method ``forward`` takes ``tokens`` (int64 [1, n], n from 1 to ``rows``) and ``start_pos`` (int64 [1]), and returns the logits of the last
token (float32 [1, vocabulary]). The other methods are those that ExecuTorch's ``TextLLMRunner`` reads; each returns a constant.

The decoder behind an encoder is the method ``text_decoder``. It takes also the encoder's result (float32 [1, positions, width]) and ``source_span``
(int64 [2]): the first position and the number of positions whose keys and values the run computes. A text's first run computes those of all
positions, and later runs 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from openneutron.device import pte
from openneutron.device.simulator import Closing, Simulator
from openneutron.errors import InvalidModelError, InvalidOptionError
from openneutron.isa import Microcode, Program
from openneutron.isa.payload import Format, Payload, parse
from openneutron.language.times import Work, work_of
from openneutron.targets import with_checksum

Floats = npt.NDArray[np.float32]

FORMATS = (Format.LEADING, Format.SPAN)
"""The formats of a language model's inputs, tokens and span."""

SOURCE_FORMATS = (Format.CONTIGUOUS, Format.CONTIGUOUS)
"""The formats of two more inputs behind an encoder: its result, and the span of its positions."""

TEXT_DECODER = "text_decoder"
"""The method of the decoder behind an encoder, by the name that ExecuTorch's exports of such models have."""

ROWS, CONTEXT, VOCABULARY = "get_max_seq_len", "get_max_context_len", "get_vocab_size"
BEGIN, ENDS = "get_bos_id", "get_eos_ids"
TOKENIZER_IDENTITY = "get_tokenizer_identity"
SOURCE_POSITIONS, SOURCE_WIDTH = "get_source_positions", "get_source_width"
PROMPT, SUPPRESSED, SUPPRESSED_FIRST = "get_prompt_ids", "get_suppressed_ids", "get_suppressed_first_ids"


@dataclass(frozen=True, slots=True)
class Interface:
    """The facts about a language model that its user needs.

    * ``rows``: the largest number of tokens in a run.
    * ``context``: the number of positions in the cache.
    * ``begin_token``: the token that begins a text, or None; ``end_tokens``: the tokens that end a text.
    * ``source``: the rows and the columns of an encoder's result; None without an encoder.
    * ``prompt``: the tokens that begin each text of a model with an encoder.
    * ``suppressed``: tokens that are never chosen; ``suppressed_first``: tokens that are not chosen directly after the prompt.
    * ``tokenizer``: the identity of the model's tokenizer (see ``generation.identity``); None if it is not known.
    """

    rows: int
    context: int
    vocabulary: int
    begin_token: int | None = None
    end_tokens: tuple[int, ...] = ()
    source: tuple[int, int] | None = None
    prompt: tuple[int, ...] = ()
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()
    tokenizer: int | None = None

    @property
    def method(self) -> str:
        """Return the name of the method that computes logits."""
        return pte.FORWARD if self.source is None else TEXT_DECODER

    @property
    def formats(self) -> tuple[Format, ...]:
        return FORMATS if self.source is None else (*FORMATS, *SOURCE_FORMATS)

    def methods(self) -> dict[str, int | bool | list[int]]:
        """Return the constant methods of the ``.pte``: a mapping from name to value."""
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
        if self.tokenizer is not None:
            made[TOKENIZER_IDENTITY] = self.tokenizer
        if self.source is not None:
            made[SOURCE_POSITIONS], made[SOURCE_WIDTH] = self.source
        lists = {PROMPT: self.prompt, SUPPRESSED: self.suppressed, SUPPRESSED_FIRST: self.suppressed_first}
        return made | {name: list(tokens) for name, tokens in lists.items() if tokens}

    def payload(self, program: Program) -> Payload:
        """Return the delegate payload that contains this model's program."""
        count = len(self.formats)
        return Payload(program, self.formats, (Format.CONTIGUOUS,), tuple(range(count)), (0,), count)


def found(data: bytes, name: str) -> tuple[Interface, Program]:
    """Return the interface and the program of a language model in a ``.pte``.

    ``data`` has the bytes of the file, and ``name`` is its name in messages. Raises InvalidProgramError if the file is damaged, and
    InvalidModelError if it is not a language model.
    """
    methods = pte.methods(data, name)
    facts = {method.name: _numbers(method) for method in methods}
    source = tuple(number for key in (SOURCE_POSITIONS, SOURCE_WIDTH) for number in facts.get(key, ()))
    own = TEXT_DECODER if source else pte.FORWARD
    delegates = [item for method in methods if method.name == own for item in method.delegates]
    missing = [key for key in (ROWS, CONTEXT, VOCABULARY) if len(facts.get(key, ())) != 1]
    if missing or len(delegates) != 1 or delegates[0].backend != pte.BACKEND_ID:
        what = f"no method '{missing[0]}'" if missing else "more than the program of a decoder"
        raise _no_model(name, f"it has {what}")
    payload = parse(delegates[0].payload)
    (rows,), (context,), (vocabulary,) = (facts[key] for key in (ROWS, CONTEXT, VOCABULARY))
    begin = facts.get(BEGIN, ())
    identity = facts.get(TOKENIZER_IDENTITY, ())
    interface = Interface(
        rows,
        context,
        vocabulary,
        begin[0] if begin else None,
        facts.get(ENDS, ()),
        (source[0], source[1]) if len(source) == 2 else None,
        prompt=facts.get(PROMPT, ()),
        suppressed=facts.get(SUPPRESSED, ()),
        suppressed_first=facts.get(SUPPRESSED_FIRST, ()),
        tokenizer=identity[0] if identity else None,
    )
    if payload.input_formats != interface.formats:
        raise _no_model(name, "its program takes no tokens with their position")
    return interface, payload.program


def is_language_model(data: bytes, name: str) -> bool:
    """Return whether a ``.pte`` is a language model of this compiler. Raises InvalidProgramError if the file is damaged."""
    try:
        found(data, name)
    except InvalidModelError:
        return False
    return True


def timed_work(microcode: Microcode) -> Work:
    """Return the linear layers and attentions of a decoder's program for i.MX 95 or Cortex-A55, whose times
    ``language/times.py`` models. For other targets, and for programs that are no decoder, the result is empty."""
    target = with_checksum(microcode.target)
    cores = target is not None and target.name.startswith(("imx95", "cortex-a55"))
    return work_of(microcode) if cores else ()


def _no_model(name: str, fact: str) -> InvalidModelError:
    return InvalidModelError(
        f"'{name}' is no language model of this compiler: {fact}. Make one with openneutron.llm.export."
    )


def _numbers(method: pte.Method) -> tuple[int, ...]:
    """Return the integers that a constant method returns. The result is empty for any other method."""
    values = [method.values[index] for index in method.outputs]
    constant = not method.inputs and not method.instructions
    return tuple(value for value in values if isinstance(value, int)) if constant else ()


class LanguageModel(Closing):
    """A language model that is ready to run on the simulated NPU. Use it in a ``with`` statement, or call ``close``.

    ``threads`` is the number of threads that compute a kernel call together; None stands for the value of OPENNEUTRON_THREADS, or 1.

    Raises as ``found`` and ``Simulator`` do.
    """

    def __init__(self, data: bytes, name: str = "model.pte", threads: int | None = None) -> None:
        self.name = name
        self.interface, program = found(data, name)
        self._simulator = Simulator(program, threads=threads)
        self._source: Floats | None = None

    @property
    def work(self) -> Work:
        """Return the linear layers and attentions of the program, to model their times. The result is empty if the
        target is neither i.MX 95 nor Cortex-A55."""
        return timed_work(self._simulator.microcode)

    @property
    def microcode(self) -> Microcode:
        """Return the decoded program."""
        return self._simulator.microcode

    def close(self) -> None:
        """Release the program. A second call does nothing."""
        self._simulator.close()

    def listen(self, source: Floats) -> None:
        """Set the encoder's result, float32 [positions, width], for all texts from now on. The next run must begin at position 0.

        Raises InvalidOptionError if the model takes no encoder's result, or one of another shape.
        """
        if source.shape != self.interface.source:
            takes = "takes none" if self.interface.source is None else f"takes {list(self.interface.source)}"
            raise InvalidOptionError(f"'{self.name}': a source of {list(source.shape)}; the model {takes}.")
        self._source = np.ascontiguousarray(source, np.float32)

    def _source_inputs(self, position: int) -> tuple[npt.NDArray[np.float32 | np.int64], ...]:
        """Return the inputs for cross attention: the encoder's result, and the range of its positions whose keys and
        values the run computes (first position, number). The result is empty if the model takes no encoder's result.

        A run at position 0 computes the keys and values of all positions. Later runs compute none, since the cache
        has them. Raises InvalidOptionError if ``listen`` has not been called.
        """
        if self.interface.source is None:
            return ()
        if self._source is None:
            raise InvalidOptionError(f"'{self.name}': a run without a source; give it the encoder's result first.")
        return self._source, np.array([0, 0 if position else len(self._source)], np.int64)

    def run(self, tokens: Sequence[int], position: int) -> Floats:
        """Run the program on tokens, and return the logits of the last token: float32 [vocabulary].

        ``position`` is that of the first token. The cache must have the tokens before it. A run takes 1 to
        ``interface.rows`` tokens. Raises InvalidOptionError for another number of tokens, for a token or a position
        that the model does not have, and if the model takes an encoder's result and ``listen`` has not been called.
        The cache is then unchanged.
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
        span = np.array([position, len(tokens)], np.int64)
        (logits,) = self._simulator.run([given, span, *self._source_inputs(position)])
        return logits.view(np.float32)
