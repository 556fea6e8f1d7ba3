# SPDX-License-Identifier: BSD-3-Clause
"""Insert one fault at a time: ``python -m tests.fuzz.mutants COUNT [SEED [FILE ...]]`` tries COUNT faults and lists the
survivors; ``--hand`` tries the faults of tests/fuzz/hand_made.py and lists the test that noticed each of them.

A fault changes one comparison, operator, constant or condition of ``litert/read.py``, the operator table, the compiler
or a kernel in C (or of the named files), but no assertion. SEED selects the faults. Each fault is inserted in a copy of
the checkout. The tests nearest to its file run there until one fails. A fault that no test notices survives: either a
test is missing, or the change has no effect.
"""

from __future__ import annotations

import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.hand_made import FAULTS

ROOT = Path(__file__).parents[2]

COPIED = ("src", "tests", "scripts", "runtime", "bench", "pyproject.toml", "CMakeLists.txt")
"""The parts of a checkout that tests need."""

SECONDS = 300
"""Seconds after which a fault counts as found: an endless or very slow test run is a failure."""

NEAREST: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("src/openneutron/litert/", ("tests/litert", "tests/mixed")),
    (
        "src/openneutron/ops/",
        (
            *("tests/ops", "tests/litert", "tests/compiler/test_selection.py", "tests/compiler/test_legalize.py"),
            *("tests/compiler/test_strided_slice.py", "tests/runtime/test_data_movement.py"),
        ),
    ),
    (
        "src/openneutron/compiler/search/cascade/",
        ("tests/compiler/test_cascade.py", "tests/compiler/test_cascade_search.py"),
    ),
    (
        "src/openneutron/compiler/select/rules/reductions.py",
        (
            "tests/runtime/test_softmax.py",
            "tests/runtime/test_log_softmax.py",
            "tests/runtime/test_l2_normalization.py",
        ),
    ),
    ("src/openneutron/compiler/select/", ("tests/compiler/test_selection.py", "tests/compiler/test_legalize.py")),
    (
        "src/openneutron/compiler/legalize/quantize.py",
        ("tests/compiler/test_rescaled_parts.py", "tests/compiler/test_fold_quantize.py"),
    ),
    (
        "src/openneutron/compiler/legalize/",
        ("tests/compiler/test_legalize.py", "tests/compiler/test_selection.py", "tests/compiler/test_transposed.py"),
    ),
    ("src/openneutron/compiler/cost/language.py", ("tests/language/test_times.py", "tests/language/test_phases.py")),
    ("src/openneutron/compiler/", ("tests/compiler/test_selection.py", "tests/compiler/test_cascade_search.py")),
    *(
        (f"runtime/kernels/{kernel}/", ("tests/language/test_kernels.py",))
        for kernel in ("activation", "cached_attention", "dynamic_linear", "norm", "token_embedding")
    ),
    ("runtime/kernels/conv_2d_job/", ("tests/jobs", "tests/runtime")),
    ("runtime/kernels/unidirectional_sequence_", ("tests/recurrent", "tests/runtime")),
    *(
        (
            f"runtime/kernels/{file}_dsp",
            ("tests/cortex_m33/test_dsp_convolutions.py", f"tests/cortex_m33/test_dsp_{test}.py"),
        )
        for file, test in (
            *(("conv_2d/conv_2d_s8", "layers"), ("conv_2d/conv_2d_s16", "layers"), ("conv_2d/convolution", "layers")),
            *((f"depthwise_conv_2d/depthwise_conv_2d_{size}", "depthwise") for size in ("s8", "s16")),
        )
    ),
    ("runtime/kernels/", ("tests/runtime",)),
)
"""The tests to run by the start of a path, beside those that name the file; the first matching row counts."""

MUTATED = (
    "src/openneutron/litert/read.py",
    "src/openneutron/ops/*.py",
    "src/openneutron/compiler/**/*.py",
    "runtime/kernels/*/*.c",
)

COMPARISONS = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.Is: "is not",
}
ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*", ast.Mod: "*"}
IN_C = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "&&": "||", "||": "&&"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """Characters [start, end) of a file replaced. ``path`` is below the checkout."""

    path: str
    start: int
    end: int
    text: str

    def applied(self, source: str) -> str:
        return source[: self.start] + self.text + source[self.end :]

    def shown(self, source: str) -> str:
        """Return the place, the original line, and the replaced and the new text."""
        begin = source.rfind("\n", 0, self.start) + 1
        line = source[begin : source.find("\n", self.start)].strip()
        number = source.count("\n", 0, self.start) + 1
        return f"{self.path}:{number}: {line}\n    {source[self.start : self.end]!r} became {self.text!r}"


def mutants(path: str, source: str) -> list[Mutant]:
    """Return every possible fault of a file, in text order."""
    found = _in_c(source) if path.endswith(".c") else _in_python(source)
    return sorted((Mutant(path, *each) for each in found), key=lambda mutant: mutant.start)


def _in_python(source: str) -> Iterator[tuple[int, int, str]]:
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    encoded = source.splitlines()

    def at(line: int, column: int) -> int:
        return lines[line - 1] + len(encoded[line - 1].encode()[:column].decode())

    def between(left: ast.expr, right: ast.expr) -> tuple[int, int]:
        """Return the text between two operands: the operator with its blanks and brackets."""
        assert left.end_lineno is not None and left.end_col_offset is not None
        return at(left.end_lineno, left.end_col_offset), at(right.lineno, right.col_offset)

    tree = ast.parse(source)
    asserted = {inner for node in ast.walk(tree) if isinstance(node, ast.Assert) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if node in asserted:
            continue
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            for op, left, right in zip(node.ops, operands, operands[1:], strict=False):
                if type(op) in COMPARISONS:
                    yield from _replaced(
                        source, *between(left, right), r"not in|is not|in|is|[<>=!]=?", COMPARISONS[type(op)]
                    )
        elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not _is_text(node):
            yield from _replaced(source, *between(node.left, node.right), r"//|[-+*%]", ARITHMETIC[type(node.op)])
        elif isinstance(node, ast.BoolOp):
            other = "or" if isinstance(node.op, ast.And) else "and"
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from _replaced(source, *between(left, right), r"\band\b|\bor\b", other)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            start = at(node.lineno, node.col_offset)
            yield start, start + len("not "), ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            assert node.end_lineno is not None and node.end_col_offset is not None
            text = str(not node.value) if isinstance(node.value, bool) else str(node.value + 1)
            yield at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset), text


def _is_text(node: ast.BinOp) -> bool:
    """Return whether the expression concatenates texts; only tests of messages notice these."""
    return any(
        isinstance(each, ast.JoinedStr) or (isinstance(each, ast.Constant) and isinstance(each.value, str))
        for each in (node.left, node.right)
    )


def _replaced(source: str, start: int, end: int, pattern: str, text: str) -> Iterator[tuple[int, int, str]]:
    match = re.search(pattern, source[start:end])
    if match is not None:
        yield start + match.start(), start + match.end(), text


def _in_c(source: str) -> Iterator[tuple[int, int, str]]:
    """Return faults in operators with blanks around them, and in numbers; not in comments, texts and preprocessor
    lines."""
    blank = re.sub(
        r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|^[ \t]*#[^\n]*',
        lambda m: re.sub(r"\S", " ", m[0]),
        source,
        flags=re.DOTALL | re.MULTILINE,
    )
    for match in re.finditer(r"(?<= )(<=|>=|==|!=|&&|\|\||<|>|\+|-)(?= )", blank):
        yield match.start(), match.end(), IN_C[match[0]]
    for match in re.finditer(r"(?<![\w.])\d+(?=[uU]?\b)(?![\w.]*[xX.])", blank):
        yield match.start(), match.end(), str(int(match[0]) + 1)


def nearest(path: str) -> list[str]:
    """Return the tests that run for a file: those whose text names it, then those of its folder."""
    in_c = path.startswith("runtime/")
    name = Path(path).stem if in_c else path.removeprefix("src/").removesuffix(".py").replace("/", ".")
    areas = ("runtime",) if in_c else ("litert", "ops", "compiler", "mixed")
    files = [file for area in areas for file in sorted((ROOT / "tests" / area).glob("test_*.py"))]
    naming = [
        str(file.relative_to(ROOT))
        for file in files
        if file.stem == f"test_{Path(path).stem}" or re.search(rf"\b{re.escape(name)}\b", file.read_text())
    ]
    part = next(tests for start, tests in NEAREST if path.startswith(start))
    return list(dict.fromkeys([*naming, *part]))


def noticed_by(mutant: Mutant, copy: Path, tests: Sequence[str]) -> str:
    """Return what fails in the copy with the fault: a test, or the build; empty where nothing does. Restores the copy."""
    file = copy / mutant.path
    source = file.read_text()
    file.write_text(mutant.applied(source))
    try:
        if mutant.path.startswith("runtime/") and not _builds(copy):
            return "the build"
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
        done = subprocess.run(
            command, cwd=copy, env=_environment(copy), capture_output=True, text=True, timeout=SECONDS, check=False
        )
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        return "" if done.returncode == 0 else failed[1] if failed else f"pytest's exit code {done.returncode}"
    except subprocess.TimeoutExpired:
        return f"the limit of {SECONDS} s"
    finally:
        file.write_text(source)


def _environment(copy: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": f"{copy / 'src'}:{copy}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
    }


def _builds(copy: Path) -> bool:
    configure = ["cmake", "-S", ".", "-B", "build", "-G", "Ninja", "--log-level=WARNING"]
    commands = ([] if (copy / "build").is_dir() else [configure]) + [
        ["cmake", "--build", "build", "--target", "develop"]
    ]
    return all(subprocess.run(each, cwd=copy, capture_output=True, check=False).returncode == 0 for each in commands)


@contextmanager
def checkout() -> Iterator[Path]:
    """A copy of the checkout, built."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy2)(ROOT / name, copy / name)
        if not _builds(copy):
            raise SystemExit("the copy can't be built without a fault")
        yield copy


def main(count: int, seed: int = 0, names: Sequence[str] = ()) -> None:
    """Try ``count`` faults; print each survivor and the totals."""
    paths = [str(path.relative_to(ROOT)) for pattern in names or MUTATED for path in sorted(ROOT.glob(pattern))]
    sources = {path: (ROOT / path).read_text() for path in paths if not path.endswith("__init__.py")}
    known = [mutant for path, source in sources.items() for mutant in mutants(path, source)]
    chosen = random.Random(seed).sample(known, min(count, len(known)))
    survivors = 0
    with checkout() as copy:
        for mutant in chosen:
            if not noticed_by(mutant, copy, nearest(mutant.path)):
                survivors += 1
                print(f"survived: {mutant.shown(sources[mutant.path])}", flush=True)
            if mutant.path.endswith(".c"):
                _builds(copy)
    print(f"{len(chosen)} of {len(known)} faults tried, {survivors} survived")


def try_hand_made() -> int:
    """Try the faults of the table; print what noticed each of them. Return 1 where one survives."""
    survivors = 0
    with checkout() as copy:
        for fault in FAULTS:
            start = (copy / fault.path).read_text().index(fault.before)
            mutant = Mutant(fault.path, start, start + len(fault.before), fault.after)
            by = noticed_by(mutant, copy, fault.tests)
            survivors += not by
            print(f"{fault.kind} ({fault.path}): {by or 'NOT NOTICED'}", flush=True)
            if fault.path.startswith("runtime/"):
                _builds(copy)
    print(f"{len(FAULTS)} faults, {survivors} survived")
    return int(survivors > 0)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print(__doc__)
        sys.exit(2)
    if sys.argv[1] == "--hand":
        sys.exit(try_hand_made())
    main(int(sys.argv[1]), int((*sys.argv, "0")[2]), sys.argv[3:])
