# SPDX-License-Identifier: BSD-3-Clause
"""Random decoders and texts: ``python -m tests.fuzz.language FIRST END [aarch64]`` goes through the seeds from FIRST up to END.

A program of a seed takes 1 to 16 tokens a run, and 1 to 4 threads. From seed 10000 on, some matrices are divided along K; from 20000 on, layers have
cross attention. The text is run token by token, and in
runs of random lengths; the logits of each run and the caches at the end are compared with the reference in numpy byte by byte. The program of
a CPU is compared, and one of whose matrices the NPU multiplies random numbers of channels, in each release of the driver in turn; the model of the
NPU must have no violation to report. With ``aarch64`` qemu-user runs the programs with the kernels for aarch64, on a core with the dot product
extension and on one without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from unittest import mock

import numpy as np
import numpy.typing as npt

from openneutron import targets
from openneutron.compiler import Compiled
from openneutron.device.device_model import DeviceModel
from openneutron.device.simulator import Moment, Simulator
from openneutron.errors import DriverError
from openneutron.isa import Program, base_text
from openneutron.language.decoder import Decoder, Floats, Matrix
from openneutron.language.program import Plan, compiled, never
from openneutron.language.times import ALONE, Share
from tests.fuzz.aarch64 import CPUS
from tests.fuzz.driver import with_release
from tests.language.random_decoders import random_decoder
from tests.language.reference import Reference
from tests.support.divided import Divided, Together

CPU = "cortex-a55"
MOST_ROWS = 16
"""The most tokens of a run."""

Tokens = npt.NDArray[np.int64]
Execute = Callable[[Program, bytes], bytes]
"""A function that runs a program once for each of its sets of inputs, and returns the bytes of all outputs."""


@dataclass(frozen=True, slots=True)
class Case:
    """A decoder, a text, and the ends of the runs into which the text is divided."""

    decoder: Decoder
    text: Tokens
    rows: int
    ends: tuple[int, ...]
    source: Floats | None = None
    """The rows that layers with cross attention read."""

    @property
    def divisions(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ends of the runs, and those of runs of single tokens."""
        return self.ends, tuple(range(1, len(self.text) + 1))

    def inputs(self, ends: Sequence[int]) -> Iterator[tuple[npt.NDArray[np.int64 | np.float32], ...]]:
        """Yield the program's inputs for each run.

        The tokens that a run does not have are no tokens of the vocabulary. The first run alone has the source; the others have no numbers.
        """
        for first, end in pairwise((0, *ends)):
            tokens = np.full(self.rows, -1, np.int64)
            tokens[: end - first] = self.text[first:end]
            yield tokens, np.array([first, end - first], np.int64), *self.source_of(first)

    def source_of(self, position: int) -> tuple[npt.NDArray[np.int64 | np.float32], ...]:
        """Return the inputs of a run from this position on that are about the source."""
        if self.source is None:
            return ()
        if position:
            return np.full_like(self.source, np.nan), np.array([0, 0], np.int64)
        return self.source, np.array([0, len(self.source)], np.int64)

    def reference(self) -> Reference:
        """Return the reference, which has read the source."""
        found = Reference(self.decoder)
        if self.source is not None:
            found.read(self.source)
        return found


def case_of(seed: int) -> Case:
    """Return the case of a seed: a prompt in runs of 1 to ``rows`` tokens, then single tokens."""
    decoder, random = random_decoder(seed), np.random.default_rng((seed, 40))
    rows = int(random.integers(1, min(MOST_ROWS, decoder.context) + 1))
    length = decoder.context if random.random() < 0.3 else int(random.integers(1, decoder.context + 1))
    prompt, ends = int(random.integers(1, length + 1)), [0]
    while ends[-1] < prompt:
        ends.append(min(ends[-1] + int(random.integers(1, rows + 1)), prompt))
    text, source = random.integers(0, decoder.vocabulary, length), None
    if decoder.source_positions:
        source = random.standard_normal((decoder.source_positions, decoder.source_width)).astype(np.float32)
    return Case(decoder, text, rows, (*ends[1:], *range(prompt + 1, length + 1)), source)


def expected(case: Case) -> tuple[list[Floats], Reference]:
    """Return the reference's logits behind each token, and the reference at the end of the text."""
    reference = case.reference()
    return [reference.run([token], position) for position, token in enumerate(case.text)], reference


def programs(case: Case, seed: int) -> Iterator[tuple[str, Compiled]]:
    """Yield the program of a CPU, and one with jobs, each with its release of the driver ("" for none)."""
    yield "", compiled(case.decoder, targets.described(CPU), Plan(case.rows, never))
    release = ("third", "second", "first")[seed % 3]
    random = np.random.default_rng((seed, 41))

    shares: dict[tuple[int, bool], Share] = {}

    def share(matrix: Matrix, block: int, most: int, is_last: bool) -> Share:
        """Return a random share: the NPU multiplies all channels of a third of the matrices, and none of another third in short runs."""
        blocks, first = most // block, 1 if is_last else int(random.integers(1, case.rows // 2 + 2))
        many = blocks if random.random() < 1 / 3 else int(random.integers(1, blocks + 1))
        few = 0 if random.random() < 1 / 3 else int(random.integers(0, blocks + 1))
        found = Share(first, many * block, few * block) if random.random() < 0.9 else ALONE
        return shares.setdefault((id(matrix.values), is_last), found)

    plan = Plan(case.rows, share, int(random.integers(1, MOST_ROWS + 1)))
    yield release, compiled(case.decoder, with_release(release), plan)


def compare(
    case: Case, release: str, made: Compiled, wanted: list[Floats], reference: Reference, threads: int = 1
) -> int:
    """Compare a program's logits and caches for both divisions of the text; return the number of jobs. Raises AssertionError for a difference."""
    kind = Together if len(case.text) % 2 else Divided
    with DeviceModel(release=release or "third") as model:
        for ends in case.divisions:
            # Every other case has its items in an order that real threads hardly have.
            with kind(made.program, threads) as simulator:
                for end, inputs in zip(ends, case.inputs(ends), strict=True):
                    (logits,) = simulator.run(inputs)
                    if logits.tobytes() != wanted[end - 1].tobytes():
                        raise AssertionError(first_difference(case, made, ends, end))
                refuse(case, simulator, made)
                found = caches(made, simulator)
            for number, cache in enumerate(reference.states()):
                assert found[number] == cache.content(), f"cache {number} after runs to {ends}"
        counts = model.counts()
        assert not counts.violations, model.violation()
    return int(counts.jobs)


def refuse(case: Case, simulator: Simulator, made: Compiled) -> None:
    """Run with spans and tokens outside the program's bounds. Raises AssertionError where a run has no error, or changes the caches."""
    decoder, before = case.decoder, caches(made, simulator)
    spans = (
        (0, 0),
        (0, case.rows + 1),
        (decoder.context, 1),
        (-1, 1),
        (decoder.context - case.rows + 1, case.rows),
        (2**63 - 1, 1),
    )
    bad = [(np.zeros(case.rows, np.int64), span) for span in spans]
    for token in (-1, decoder.vocabulary, 2**32):
        tokens = np.zeros(case.rows, np.int64)
        tokens[-1] = token
        bad.append((tokens, (0, case.rows)))
    for tokens, span in bad:
        try:
            simulator.run((tokens, np.array(span, np.int64), *case.source_of(1)))
        except DriverError as error:
            assert "outside" in str(error), error
        else:
            raise AssertionError(f"a run with the span {span} and the tokens {tokens} has no error")
        assert caches(made, simulator) == before, f"the span {span} with the tokens {tokens} changes a cache"


def caches(made: Compiled, simulator: Simulator) -> list[bytes]:
    """Return the bytes of each cache, in the order of the calls."""
    found = []
    for operator in simulator.microcode.operators:
        if "cache" in operator.row.names:
            buffer = simulator.microcode.buffers[operator["cache"]]
            found.append(simulator._state[buffer["offset"] :][: buffer["channels"]].tobytes())
    return found


def first_difference(case: Case, made: Compiled, ends: Sequence[int], last: int) -> str:
    """Return the first step whose result differs from the reference's in the run that ends at ``last``, or before it."""
    reference, found = case.reference(), []

    def after_call(moment: Moment) -> None:
        call, name = moment.microcode.operators[moment.operator], made.schedule.calls[moment.operator].name
        if name not in reference.steps:
            return
        buffer, wanted = moment.microcode.buffers[call["output"]], reference.steps[name]
        got = moment.memory[base_text(buffer["base"])][buffer["offset"] :][: wanted.nbytes].view(np.float32)
        differs = got.view(np.uint32) != wanted.ravel().view(np.uint32)
        if differs.any():
            at = int(differs.argmax())
            found.append(
                f"{name}: {differs.sum()} of {wanted.size} values differ, the first at {np.unravel_index(at, wanted.shape)}: "
                f"{got[at]!r}, the reference's is {wanted.ravel()[at]!r}"
            )

    with Simulator(made.program) as simulator:
        for (first, end), inputs in zip(pairwise((0, *ends)), case.inputs(ends), strict=True):
            reference.run(case.text[first:end], first)
            simulator.run(inputs, after_call)
            if found:
                return f"run of the tokens {first} to {end - 1}, {found[0]}"
            if end == last:
                break
    return f"run that ends at {last}: the logits differ, and each step alone does not"


def check(seed: int) -> int:
    """Compare both programs of a seed; return the number of jobs. Raises AssertionError for a difference."""
    case = case_of(seed)
    wanted, reference = expected(case)
    return sum(
        compare(case, release, made, wanted, reference, 1 + seed // 3 % 4) for release, made in programs(case, seed)
    )


def check_with(seed: int, execute: Execute) -> int:
    """Compare the logits of a seed's programs on each emulated core; return the number of texts. Raises AssertionError for a difference.

    The model of the NPU is that of the third release, so that programs of other releases are left out.
    """
    case, texts = case_of(seed), 0
    wanted, _ = expected(case)
    for release, made in programs(case, seed):
        for cpu, ends in product(CPUS, case.divisions if release in ("", "third") else ()):
            with mock.patch.dict(os.environ, QEMU_CPU=cpu):
                found = execute(
                    made.program, b"".join(array.tobytes() for inputs in case.inputs(ends) for array in inputs)
                )
            assert found == b"".join(wanted[end - 1].tobytes() for end in ends), (
                f"{cpu}, {release or 'no jobs'}, runs to {ends}"
            )
            texts += 1
    return texts


def main(first: int, end: int, emulated: bool = False) -> int:
    """Check the seeds [first, end), print each failure and the sum. Return 1 where anything failed."""
    failed = total = 0
    with tempfile.TemporaryDirectory() as folder:
        check_seed: Callable[[int], int] = check
        if emulated:
            from tests.support import aarch64

            execute = aarch64.runner_of_jobs(aarch64.library_in(Path(folder)))
            check_seed = lambda seed: check_with(seed, execute)  # noqa: E731
        for seed in range(first, end):
            try:
                total += check_seed(seed)
            except Exception as error:  # each seed is reported, and the others go on
                failed += 1
                print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
    print(f"{end - first} decoders, {total} {'texts' if emulated else 'jobs'}: {failed} differ")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), "aarch64" in sys.argv[3:]))
