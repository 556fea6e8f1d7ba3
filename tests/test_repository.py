# SPDX-License-Identifier: BSD-3-Clause
"""The house rules that no linter knows: who imports what, names, licence lines, pins, generated files."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from openneutron import litert
from scripts.published_networks import cifarnet
from tests.support.parts import ONLY, PARTS, is_command, part_of

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "openneutron"

MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}
"""The package's modules by their dotted names."""

BELOW_PYTORCH = ("torch", "torchao", "executorch")
ALLOWED_OUTSIDE: dict[str, set[str]] = {
    "ir": {"numpy"},
    "targets": set(),
    "ops": {"numpy"},
    "isa": {"numpy"},
    "device.device_model": {"numpy"},
    "device.neutron_jobs": {"numpy"},
    "device.pte": set(),
    "litert": {"ai_edge_litert", "ai_edge_quantizer", "flatbuffers", "numpy"},
    "compiler": {"numpy", "ortools"},
    "device.data": {"PIL", "numpy", "scipy", "yaml"},
    "device.cache": set(),
    "device.converter": {"eiq_neutron_sdk"},
    "device.simulator": {"numpy"},
    "features.board": {"numpy"},
    "features.export": {"numpy"},
    "device.mixed": {"numpy"},
    "language": {"gguf", "numpy", "tokenizers", "transformers"},
}
"""Third parties of each part; for parts that are not listed, only the rule about flatbuffers holds."""

DRIVES_PYTORCH = {
    "api",
    "cli",
    "features.accuracy",
    "features.demo",
    "features.profile",
    "features.quantize",
    "features.report",
    "pytorch",
}


def tracked(*patterns: str) -> list[Path]:
    """Files of the checkout that git knows, or would after `git add`."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return sorted(ROOT / name for name in listed if name and (ROOT / name).is_file())


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every module a file imports, anywhere in it, with its line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            assert node.module is not None
            for alias in node.names:
                # `from openneutron import ops` imports openneutron.ops
                whole = node.module in MODULES or node.module.split(".")[0] == "tests"
                yield (f"{node.module}.{alias.name}" if whole else node.module), node.lineno


def sources() -> list[tuple[str, Path]]:
    """(part, file) of the package, its own __init__.py left out."""
    return [(part_of(module), path) for module, path in MODULES.items() if module not in ("openneutron", *EMPTY)]


EMPTY = ("openneutron.device", "openneutron.features")
"""Packages that hold parts and no code."""


def test_every_part_has_its_place() -> None:
    assert {part for part, _ in sources()} == set(PARTS)
    assert all("\nimport" not in MODULES[package].read_text() for package in EMPTY)


def test_no_part_imports_one_after_it() -> None:
    broken = []
    for part, path in sources():
        before = ONLY.get(part) or set(PARTS[: PARTS.index(part)])
        for module, line in imports(path):
            of_ours = module.split(".")[0] == "openneutron" and module not in ("openneutron", "openneutron.__version__")
            if of_ours and part_of(module) not in before | {part}:
                broken.append(f"{path.relative_to(ROOT)}:{line}: {part} must not import {module}")
    assert broken == []


STAGES = ("legalize", "select", "cost", "rewrite", "schedule", "place", "search", "emit", "driver")
"""The compiler's stages in processing order: each may import those before it."""


def test_the_stages_of_the_compiler_import_those_before_them_only() -> None:
    top = {path.name.removesuffix(".py") for path in (PACKAGE / "compiler").iterdir() if not path.name.startswith("__")}
    assert top == set(STAGES)
    broken = []
    for path in tracked("src/openneutron/compiler/*/**.py", "src/openneutron/compiler/*/*.py"):
        stage = path.relative_to(PACKAGE / "compiler").parts[0]
        for module, line in imports(path):
            parts = module.split(".")
            if parts[:2] == ["openneutron", "compiler"] and STAGES.index(parts[2]) > STAGES.index(stage):
                broken.append(f"{path.relative_to(ROOT)}:{line}: {stage} must not import {module}")
    assert broken == []


def package_of(module: str) -> str:
    """Return the package that a module stands in, three names deep; a module beside them is a part of its own, as is a command."""
    if is_command(module):
        return module
    parts = module.split(".")
    is_package = MODULES[module].name == "__init__.py"
    return module if len(parts) == 2 else ".".join(parts[: len(parts) if is_package else -1][:3])


def own_imports(tree: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the package's own modules that import statements among the nodes name."""
    for node in tree:
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else node.module for name in names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_two_packages_import_each_other() -> None:
    """Imports inside functions and for types alone count; the root's lazy exports don't."""
    edges = set()
    for module, path in MODULES.items():
        if module != "openneutron":
            for other in own_imports(ast.walk(ast.parse(path.read_text()))):
                if other in MODULES and other != "openneutron":
                    edges.add((package_of(module), package_of(other)))
    assert sorted((a, b) for a, b in edges if a < b and (b, a) in edges) == []


def at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when the module is imported, without those for types alone."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With)) and "TYPE_CHECKING" not in ast.unparse(node).split("\n")[0]:
            yield from at_import([*node.body, *getattr(node, "orelse", [])])


def test_no_modules_import_each_other_in_a_circle() -> None:
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for module, path in MODULES.items():
        others = own_imports(at_import(ast.parse(path.read_text()).body))
        sorter.add(module, *(other for other in others if other in MODULES and other != module))
    sorter.prepare()


MOST_ENTRIES = 24


def test_folders_of_the_front_end_hold_few_entries() -> None:
    for folder in (
        PACKAGE / "pytorch",
        *(path for path in (PACKAGE / "pytorch").rglob("*") if path.is_dir() and path.name != "__pycache__"),
    ):
        entries = [path.name for path in folder.iterdir() if not path.name.startswith("__")]
        assert len(entries) <= MOST_ENTRIES, (folder, sorted(entries))


def test_third_parties_stay_where_they_belong() -> None:
    broken = []
    for part, path in sources():
        for module, line in imports(path):
            package = module.split(".")[0]
            if package in sys.stdlib_module_names or package == "openneutron":
                continue
            if part in ALLOWED_OUTSIDE:
                allowed = package in ALLOWED_OUTSIDE[part]
            elif package in BELOW_PYTORCH:
                allowed = part in DRIVES_PYTORCH
            else:
                allowed = package not in ("ai_edge_litert", "flatbuffers")
            if not allowed:
                broken.append(f"{path.relative_to(ROOT)}:{line}: {part} must not import {module}")
    assert broken == []


def test_no_module_imports_a_test() -> None:
    """Code that several tests share is in tests/support, or in a module of their folder."""
    broken = []
    for path in tracked("tests/**.py", "bench/**.py", "scripts/**.py"):
        for module, line in imports(path):
            if module.startswith("tests.") and ".test_" in module:
                broken.append(f"{path.relative_to(ROOT)}:{line}: it imports {module}")
    assert broken == []


WITHOUT_TORCH = """
import sys
for name in ("torch", "torchao", "executorch"):
    sys.modules[name] = None  # importing it fails
from openneutron.cli import main
model, result = sys.argv[1:]
sys.exit(main(["compile", model, "-o", result]) or main(["run", result, "--random", "1"]) or main(["disasm", result]))
"""


def test_the_compiler_path_needs_no_torch(tmp_path: Path) -> None:
    """A .tflite compiles, runs and disassembles with torch and executorch out of reach."""
    model = tmp_path / "cifarnet.tflite"
    model.write_bytes(litert.write(cifarnet()))
    command = [sys.executable, "-c", WITHOUT_TORCH, str(model), str(tmp_path / "out.tflite")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "conv_2d_s8" in result.stdout


COMMENT_OF = {
    ".py": "# ",
    ".cmake": "# ",
    ".c": "/* ",
    ".h": "/* ",
    ".cpp": "// ",
    ".def": "/* ",
    ".map": "/* ",
    ".ld": "/* ",
    ".S": "/* ",
}


def test_every_source_file_names_its_licence() -> None:
    missing = []
    for path in tracked("*.py", "*.c", "*.h", "*.cpp", "*.def", "*.cmake", "*.ld", "*.S", "Makefile", ".ci/run"):
        lines = path.read_text().split("\n")
        line = lines[1] if lines[0].startswith("#!") else lines[0]
        if not line.startswith(f"{COMMENT_OF.get(path.suffix, '# ')}SPDX-License-Identifier: BSD-3-Clause"):
            missing.append(str(path.relative_to(ROOT)))
    assert missing == []


NAMED_BY_OTHERS = {"src/openneutron/pytorch/quantizer/utils.py"}
"""ExecuTorch's NXP backend has calibrate_and_quantize in quantizer.utils: scripts written for it change their imports' root."""


def test_no_file_is_named_after_nothing() -> None:
    vague = re.compile(r"^(utils?|helpers?|common|misc|manager|base)\.")
    found = [str(path.relative_to(ROOT)) for path in tracked() if vague.match(path.name)]
    assert [name for name in found if name not in NAMED_BY_OTHERS] == []


MOST_LINES_OF_A_FILE = 800
MOST_LINES_OF_A_FUNCTION = 60


def test_files_and_functions_have_a_readable_length() -> None:
    """Generated files aside. A function's signature and docstring do not count; ruff bounds its complexity."""
    long = []
    for path in tracked("*.py", "*.c", "*.h", "*.cpp", "*.cmake"):
        text = path.read_text()
        name = path.relative_to(ROOT)
        if "Generated" not in "\n".join(text.split("\n")[:3]) and text.count("\n") > MOST_LINES_OF_A_FILE:
            long.append(f"{name}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)) if path.suffix == ".py" else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                lines = node.end_lineno - body[0].lineno + 1 if body else 0
                if lines > MOST_LINES_OF_A_FUNCTION:
                    long.append(f"{name}:{node.lineno}: {node.name} has {lines} lines")
    assert long == []


def test_nothing_built_is_committed() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    built = re.compile(r"\.(so|o|a|whl|pte|tflite|npy|npz|pt|pt2|pyc)$|(^|/)(build|dist|\.venv|demo_output)/")
    assert [name for name in listed if built.search(name)] == []


def test_text_files_are_plain() -> None:
    """UTF-8, no tabs outside Makefiles, no trailing blanks, no emojis, and a newline at the end."""
    broken = []
    for path in tracked("*.py", "*.c", "*.h", "*.cpp", "*.md", "*.toml", "*.txt", "*.cmake", "Makefile", ".ci/run"):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(ROOT)
        if text and not text.endswith("\n"):
            broken.append(f"{name}: no newline at its end")
        for number, line in enumerate(text.split("\n"), 1):
            if line != line.rstrip() or ("\t" in line and path.name != "Makefile"):
                broken.append(f"{name}:{number}: blanks at the end, or a tab")
            if any(ord(character) > 0x1F000 for character in line):
                broken.append(f"{name}:{number}: an emoji")
    assert broken == []


def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_constraints_pin_what_the_package_asks_for() -> None:
    """Every direct dependency is in constraints.txt, and exact pins agree with it."""
    pinned = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().split("\n")
        if line and not line.startswith("#")
    )
    table = project()
    wanted = [*table["dependencies"], *(line for extra in table["optional-dependencies"].values() for line in extra)]
    for requirement in wanted:
        name, exact = re.match(r"([\w-]+)(?:\[\w+\])?(?:==([\w.]+))?", requirement).groups()
        if name != "openneutron":
            assert name in pinned, f"{name} is not in constraints.txt"
            assert exact in (None, pinned[name]), f"{name}: pyproject.toml and constraints.txt differ"


def test_the_hooks_before_a_commit_run_the_pinned_ruff() -> None:
    pinned = re.findall(r"^ruff==.*$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    asked = re.findall(r'additional_dependencies: \["(.*)"\]', (ROOT / ".pre-commit-config.yaml").read_text())
    assert set(asked) == set(pinned)


def test_the_workflow_runs_targets_of_the_makefile() -> None:
    targets = re.findall(r"run: make (\w+)", (ROOT / ".github/workflows/ci.yml").read_text())
    assert targets and all(f"\n{target}:" in (ROOT / "Makefile").read_text() for target in targets)


def test_each_test_that_is_left_out_with_tiles_states_a_reason() -> None:
    text = {path: path.read_text() for path in tracked("tests/**.py", "tests/*.py")}
    marked = {path: re.findall(r"@pytest\.mark\.without_tiles(.*)", each) for path, each in text.items()}
    assert sum(map(len, marked.values())) > 0
    bare = [
        path.name for path, reasons in marked.items() for each in reasons if not re.fullmatch(r'\("[^"]{20,}"\)', each)
    ]
    assert bare == []


def test_version_is_stated_once_and_the_same() -> None:
    import openneutron

    assert project()["version"] == openneutron.__version__


@pytest.mark.parametrize("path", tracked("*.md"), ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text())
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_places_that_the_design_names_exist() -> None:
    rows = re.findall(r"^\| .* \|$", (ROOT / "docs/design.md").read_text(), re.MULTILINE)
    places = re.findall(r"`([a-z][\w/.]*)`", "".join(row.rsplit("|", 2)[1] for row in rows))
    named = [place for place in places if "/" in place]
    assert len(named) > 40
    assert [place for place in named if not (PACKAGE / place).exists() and not (ROOT / place).exists()] == []


def test_what_compiles_beside_pip_needs_no_package() -> None:
    command = [sys.executable, "-S", "-c", "import tests.support.prepared"]  # -S: no site-packages
    paths = f"{ROOT / 'src'}:{ROOT}"
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
