# SPDX-License-Identifier: BSD-3-Clause
"""docs/reference/json.schema.json: the JSON that each command prints with --json, as a JSON Schema (draft 2020-12).

tests/cli/test_json.py compares the real output of each command with it.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

from openneutron.cli.output import SCHEMA_VERSION
from openneutron.compiler import OperatorReport, Report
from openneutron.compiler.cost.estimate import Measurement
from openneutron.compiler.emit.report import MemoryItem, StepReport
from openneutron.device.timings import StepTime
from openneutron.features.accuracy.report import LayerAccuracy, RepairReport
from openneutron.features.evaluation.results import PairResult
from openneutron.features.profile.profile import CpuProfile, OperatorProfile, Row
from openneutron.features.report.advice import Advice
from openneutron.features.report.outputs import OutputAccuracy, PartAccuracy
from openneutron.features.report.page.compare import Comparison
from openneutron.features.report.page.data import ReportData
from openneutron.features.report.page.page import SECTIONS
from openneutron.features.report.shared_arena import Share
from openneutron.features.report.summary import NOT_SHOWN, ConvertedSummary, Delegated
from openneutron.ir.graph import OnCpu
from openneutron.targets import Number

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
BOOLEAN: Schema = {"type": "boolean"}
KINDS: dict[Any, Schema] = {str: TEXT, int: WHOLE, float: NUMBER, bool: BOOLEAN, type(None): {"type": "null"}}


def or_null(schema: Schema) -> Schema:
    """Return the schema of a value that may be absent."""
    return {"anyOf": [schema, {"type": "null"}]}


def several(items: Schema) -> Schema:
    """Return the schema of an array."""
    return {"type": "array", "items": items}


def by_name(value: Schema) -> Schema:
    """Return the schema of an object whose keys are names."""
    return {"type": "object", "additionalProperties": value}


def record(fields: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    """Return the schema of an object with exactly these fields; those of ``optional`` may be absent."""
    return {
        "type": "object",
        "properties": {**fields, **(optional or {})},
        "required": list(fields),
        "additionalProperties": False,
    }


def fields_of(kind: type, without: tuple[str, ...] = ()) -> dict[str, Schema]:
    """Return the schemas of a dataclass's fields."""
    hints = get_type_hints(kind)
    if kind is ReportData:
        without = (*without, "sections")
        hints |= {each.key: tuple[each.item, ...] for each in SECTIONS if each.item is not None}  # type: ignore[name-defined]
    names = [item.name for item in dataclasses.fields(kind)]
    return {name: schema_of(hints[name]) for name in dict.fromkeys((*names, *hints)) if name not in without}


def schema_of(hint: Any) -> Schema:
    """Return the schema of an annotation: a plain type, a tuple, a union, or a dataclass."""
    if get_origin(hint) in (Union, types.UnionType):
        return {"anyOf": [schema_of(part) for part in get_args(hint)]}
    if get_origin(hint) is tuple:
        return several(schema_of(get_args(hint)[0]))
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        return record(fields_of(hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return TEXT
    return dict(KINDS[hint])


TIMINGS = record(
    {"wall_seconds": NUMBER, "cpu_seconds": NUMBER, "steps": several(record(fields_of(StepTime)))},
)
ESTIMATE = {"modelled_milliseconds": NUMBER, "expected_milliseconds": several(NUMBER), "hangs_on": TEXT}
PARTITION = record(
    {
        "name": TEXT,
        "kernel_calls": WHOLE,
        "macs": WHOLE,
        "modelled_cycles": WHOLE,
        **ESTIMATE,
        **fields_of(Report, without=(*NOT_SHOWN, "operators", "memory", "steps")),
    },
    {
        "calls": several(
            record(
                {**fields_of(OperatorReport, without=("work", "estimate")), **ESTIMATE, "idle": TEXT, "module": TEXT}
            )
        ),
        "memory": several(record(fields_of(MemoryItem))),
        "steps": several(record(fields_of(StepReport))),
    },
)
SUMMARY: dict[str, Schema] = {
    "model": TEXT,
    "target": TEXT,
    "clock_mhz": NUMBER,
    "assumed": several(TEXT),
    "operators": WHOLE,
    "whole": BOOLEAN,
    "operators_on_npu": WHOLE,
    "conversions": WHOLE,
    "delegated": several(record(fields_of(Delegated))),
    "on_cpu": several(record(fields_of(OnCpu) | {"modelled_milliseconds": or_null(NUMBER)})),
    "reasons": several(record({"reason": TEXT, "operators": WHOLE, "not_modelled": WHOLE, **ESTIMATE})),
    "parts": by_name(record(ESTIMATE)),
    "on_cpu_rows": several(
        record({"operator": TEXT, "name": TEXT, "reason": TEXT, "suggestion": TEXT, "count": WHOLE}),
    ),
    "partitions": several(PARTITION),
    "converted": several(record(fields_of(ConvertedSummary))),
    "macs": WHOLE,
    "macs_on_cpu": WHOLE,
    "macs_in_all": WHOLE,
    "weights_fit_sram": BOOLEAN,
    "constants_fit_chip": BOOLEAN,
    "modelled_cycles": WHOLE,
    "npu_cycles": WHOLE,
    "copy_cycles": WHOLE,
    "cpu_calls": WHOLE,
    "cpu_parts": WHOLE,
    "cpu_call_cycles": WHOLE,
    "cpu_call_macs": WHOLE,
    "host_cycles": WHOLE,
    "host_operators_not_modelled": WHOLE,
    "is_on_cpu": BOOLEAN,
    "overlapped_cycles": WHOLE,
    **ESTIMATE,
    "utilisation": NUMBER,
    "peak_sram_bytes": WHOLE,
    "total_sram_bytes": WHOLE,
    "sram_budget_bytes": WHOLE,
    "state_bytes": WHOLE,
    "weights_bytes": WHOLE,
    "microcode_bytes": WHOLE,
    "outputs": several(
        record(fields_of(OutputAccuracy, ("parts",)) | {"parts": several(record(fields_of(PartAccuracy)))})
    ),
    "faults": several(TEXT),
    "folded_quantize": several(TEXT),
    "file": or_null(TEXT),
    "file_bytes": or_null(WHOLE),
    "kernel_selection": or_null(TEXT),
}
KERNELS = several(record({"name": TEXT, "variants": several(TEXT)}))
POINT = record(
    {
        "sram_bytes": WHOLE,
        "total_sram_bytes": WHOLE,
        "sram_budget_kib": WHOLE,
        "modelled_cycles": WHOLE,
        "npu_cycles": WHOLE,
        "copy_cycles": WHOLE,
        "cpu_call_cycles": WHOLE,
        "host_cycles": WHOLE,
        "host_operators_not_modelled": WHOLE,
        "modelled_ms": NUMBER,
        "expected_ms": several(NUMBER),
    }
)
OUTPUT = record(
    {"index": WHOLE, "dtype": TEXT, "shape": several(WHOLE)},
    {"min": {"type": ["number", "boolean"]}, "max": {"type": ["number", "boolean"]}, "argmax": WHOLE, "file": TEXT},
)
OBJECT = record({"class": TEXT, "score": NUMBER, "box": several(NUMBER)}, {"points": several(several(NUMBER))})
TARGET = record(
    {
        **dict.fromkeys(("name", "title", "family", "hw_version", "host_core", "port"), TEXT),
        **dict.fromkeys(("units", "pipelines", "macs"), WHOLE),
        **dict.fromkeys(("compiled_for", "subsystem"), BOOLEAN),
        "obstacle": or_null(TEXT),
        **dict.fromkeys(("boards", "assumed"), several(TEXT)),
        "numbers": by_name(record(fields_of(Number))),
        "words": by_name(record({"value": several(TEXT), "source": TEXT})),
        "limits": by_name(NUMBER),
    }
)

LAYER_ACCURACY = record(
    {**fields_of(LayerAccuracy, without=("calibrated", "seen")), "calibrated": several(NUMBER), "seen": several(NUMBER)}
)
PAIR = record(fields_of(PairResult))
SWEEP_POINT = record(
    {"options": {"type": "object"}, "state": TEXT},
    {
        "sram_bytes": WHOLE,
        "total_sram_bytes": WHOLE,
        "modelled_cycles": WHOLE,
        "npu_cycles": WHOLE,
        "copy_cycles": WHOLE,
        "cpu_call_cycles": WHOLE,
        "host_cycles": WHOLE,
        "host_operators_not_modelled": WHOLE,
        "modelled_ms": NUMBER,
        "expected_ms": several(NUMBER),
        "is_on_cpu": BOOLEAN,
        "weights_bytes": WHOLE,
        "file_bytes": WHOLE,
        "operators": WHOLE,
        "operators_on_npu": WHOLE,
        "metric": or_null(TEXT),
        "metrics": by_name(NUMBER),
        "pairs": several(PAIR),
        "least_sram_bytes": WHOLE,
        "error": TEXT,
    },
)

COMMANDS: dict[str, dict[str, Schema]] = {
    "compile": {**SUMMARY, "advice": several(record(fields_of(Advice))), "timings": TIMINGS},
    "run": {"file": TEXT, "npu": TEXT, "outputs": several(OUTPUT), "objects": or_null(several(OBJECT))},
    "explain": SUMMARY,
    "export": {
        "folder": TEXT,
        "port": TEXT,
        "kernels": several(TEXT),
        "files": several(TEXT),
        "memory": {"type": "object", "additionalProperties": WHOLE},
    },
    "profile": {
        "file": TEXT,
        "target": TEXT,
        "clock_mhz": NUMBER,
        "unit_of_time": TEXT,
        "modelled_cycles": WHOLE,
        "npu_cycles": WHOLE,
        "copy_cycles": WHOLE,
        "cpu_call_cycles": WHOLE,
        "host_cycles": WHOLE,
        "host_operators_not_modelled": WHOLE,
        "overlapped_cycles": WHOLE,
        "by": TEXT,
        "rows": several(record(fields_of(Row))),
        "operators": several(record(fields_of(OperatorProfile))),
        "on_cpu": several(record(fields_of(CpuProfile))),
    },
    "accuracy": {
        "model": TEXT,
        "target": TEXT,
        "samples": WHOLE,
        "result_db": or_null(NUMBER),
        "complete": BOOLEAN,
        "has_float_weights": BOOLEAN,
        "metric": or_null(record({"name": TEXT, "float": NUMBER, "npu": NUMBER})),
        "boxes": or_null(
            record(
                {
                    **dict.fromkeys(("pictures", "matched", "lost", "new"), WHOLE),
                    "confidence": NUMBER,
                    "iou": or_null(NUMBER),
                    "best": several(NUMBER),
                }
            )
        ),
        "layers": several(LAYER_ACCURACY),
    },
    "evaluate": {
        "model": TEXT,
        "target": TEXT,
        "data": TEXT,
        "samples": WHOLE,
        "complete": BOOLEAN,
        "metric": or_null(TEXT),
        "sides": several(
            record(
                {
                    "side": TEXT,
                    "title": TEXT,
                    "metric": or_null(NUMBER),
                    "right": or_null(WHOLE),
                    "metric_at_50": or_null(NUMBER),
                }
            )
        ),
        "pairs": several(PAIR),
        "worst_classes": several(
            record(
                {
                    "class": TEXT,
                    "samples": WHOLE,
                    "right": by_name(WHOLE),
                    "taken_for": several(record({"class": TEXT, "samples": WHOLE})),
                }
            )
        ),
        "notes": several(TEXT),
        "timings": record({"wall_seconds": NUMBER, "sides": by_name(NUMBER)}),
    },
    "quantize": {"model": TEXT, "file": TEXT, "file_bytes": WHOLE},
    "sweep": {"model": TEXT, "table": TEXT, "points": several(SWEEP_POINT)},
    "report": fields_of(ReportData),
    "pareto": {
        "model": TEXT,
        "target": TEXT,
        "prefetch_constants": BOOLEAN,
        "io_place": TEXT,
        "points": several(POINT),
    },
    "disasm": {"file": TEXT, "programs": several(record({"name": TEXT, "listing": TEXT}))},
    "kernels merge": {"file": TEXT, "kernels": KERNELS},
    "kernels list": {
        "file": TEXT,
        "compiler": or_null(TEXT),
        "microcode_format": TEXT,
        "programs": several(record({"name": TEXT, "kernels": KERNELS})),
        "kernels": KERNELS,
    },
    "targets": {"targets": several(TARGET)},
    "board make": {"folder": TEXT, "files": several(TEXT), "is_compiled": BOOLEAN},
    "board read": {
        "file": TEXT,
        "chip": or_null(TEXT),
        "kernel": TEXT,
        "system": TEXT,
        "library": TEXT,
        "memory_mib": WHOLE,
        "release": or_null(TEXT),
        "int4_release": or_null(TEXT),
        "products": several(
            record({**dict.fromkeys(("kind", "m", "k", "n", "group"), WHOLE), "is_right": BOOLEAN}),
        ),
        "rescaled": several(
            record(
                {
                    "result_bytes": WHOLE,
                    **dict.fromkeys(("rounding", "zero_point", "saturation"), or_null(TEXT)),
                    "nearest": TEXT,
                    "differences": by_name(WHOLE),
                }
            )
        ),
        "times": or_null(
            record({"overhead_us": NUMBER, **dict.fromkeys(("bytes_per_ns", "products_per_ns"), or_null(NUMBER))})
        ),
        "findings": several(TEXT),
    },
    "doctor": {
        "works": or_null(BOOLEAN),
        "checks": several(record({"what": TEXT, "state": TEXT, "found": TEXT, "wanted": TEXT, "to_do": TEXT})),
        "model": or_null(
            record(
                {
                    **dict.fromkeys(("file", "form", "made_by", "plan", "try"), TEXT),
                    **dict.fromkeys(
                        ("inputs", "outputs"),
                        several(record({"name": TEXT, "dtype": TEXT, "shape": several({"anyOf": [WHOLE, TEXT]})})),
                    ),
                    "operators": by_name(WHOLE),
                    "notes": several(TEXT),
                }
            )
        ),
    },
    "generate": {
        "file": TEXT,
        "text": TEXT,
        "ended_by": {"anyOf": [{"const": reason} for reason in ("end", "stop", "length", "interrupted")]},
        "prompt_tokens": WHOLE,
        "tokens": several(WHOLE),
        "sound_seconds": or_null(NUMBER),
        "simulated": record({"first_token_seconds": NUMBER, "tokens_per_second": or_null(NUMBER)}),
    },
    "demo": {
        "test_images": WHOLE,
        "correct": by_name(WHOLE),
        "alike_on_npu_and_cpu": WHOLE,
        "summary": record(SUMMARY),
    },
}
"""The fields of each command's output, beside ``schema_version`` and ``command``."""

SEVERAL_COMPILED: dict[str, Schema] = {
    "models": several({"anyOf": [record(COMMANDS["compile"]), record({"model": TEXT, "error": TEXT})]}),
}
"""The fields of ``compile`` with several models."""

SHARING_COMPILED: dict[str, Schema] = {
    "models": several(record(COMMANDS["compile"])),
    "shared_arena": record(
        {
            "models": several(record(fields_of(Share))),
            "regions": by_name(WHOLE),
            **dict.fromkeys(
                (
                    "sram_budget_bytes",
                    "arena_bytes",
                    "state_bytes",
                    "sram_bytes",
                    "total_sram_bytes",
                    "separate_bytes",
                    "flash_bytes",
                    "equal_weights_bytes",
                ),
                WHOLE,
            ),
        }
    ),
}
"""The fields of ``compile`` with --share-arena."""


REPAIRED = {
    **fields_of(RepairReport, without=("quantization",)),
    "quantization": {"type": "object"},
    "is_reached": BOOLEAN,
    "file": or_null(TEXT),
}
"""The fields of ``accuracy`` with --repair."""


def schema() -> Schema:
    """Return the schema of the output of any command."""
    others = [
        ("compile", SEVERAL_COMPILED),
        ("compile", SHARING_COMPILED),
        ("explain", fields_of(ReportData)),
        ("report", fields_of(Comparison)),
        (
            "targets",
            {"targets": several(TARGET), "what_would_help": by_name(several(record(fields_of(Measurement))))},
        ),
        ("accuracy", REPAIRED),
    ]
    shapes = [*COMMANDS.items(), *others]
    first = {"schema_version": {"const": SCHEMA_VERSION}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Generated by `make generate` from scripts/json_schema.py; do not edit.",
        "title": "The output of openneutron COMMAND --json",
        "oneOf": [record({**first, "command": {"const": name}, **fields}) for name, fields in shapes],
    }


def text() -> str:
    """Return the file."""
    return json.dumps(schema(), indent=1) + "\n"
