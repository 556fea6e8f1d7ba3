# SPDX-License-Identifier: BSD-3-Clause
"""NeutronGraph operators go into files in the public form, and come out as they went in."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from openneutron import litert
from openneutron.compiler import compile_graph
from openneutron.compiler.legalize.partition import extract
from openneutron.device.mixed import FileSimulator
from openneutron.errors import InvalidProgramError
from openneutron.isa import Program, with_checksum
from openneutron.litert.interpret import interpret
from openneutron.litert.neutron_graph import NeutronNode, find, splice
from openneutron.litert.write import cut, pack
from tests.support.litert_files import graph_file, mixed_file
from tests.support.oracle import TARGET

ON_NPU = (1, 2)
"""Convolution and max pool of the mixed file, which is what these tests put into a NeutronGraph."""


def program(model: litert.LiteRTModel) -> tuple[NeutronNode, Program]:
    part = extract(model.graph, ON_NPU)
    made = compile_graph(part, TARGET).program
    return NeutronNode("npu", part.inputs, part.outputs, made), made


def spliced(signature: bool = False) -> tuple[litert.LiteRTModel, Program, bytes]:
    model = litert.read(mixed_file(signature))
    node, made = program(model)
    return model, made, splice(model, [0, node, *range(3, len(model.graph.nodes))])


def test_the_operator_has_the_public_form() -> None:
    _, made, data = spliced()
    file = litert.read(data).model
    main = file.subgraphs[0]
    operator = main.operators[1]
    code = file.operatorCodes[operator.opcodeIndex]
    assert (code.builtinCode, code.customCode, code.version) == (schema.BuiltinOperator.CUSTOM, b"NeutronGraph", 1)

    def name(index: int) -> str:
        return main.tensors[index].name.decode()

    assert [name(i) for i in operator.inputs] == ["q", "npu/microcode", "npu/weights", "npu/kernels"]
    assert [name(i) for i in operator.outputs] == ["p", "c", "npu/scratch", "npu/profile", "npu/debug"]
    blobs = [main.tensors[i] for i in operator.inputs[-3:]]
    assert {tensor.type for tensor in blobs} == {schema.TensorType.UINT8}
    assert [file.buffers[t.buffer].data.tobytes() for t in blobs] == [made.microcode, made.weights, made.kernels]
    scratch = main.tensors[operator.outputs[2]]
    assert (scratch.buffer, list(scratch.shape)) == (0, [made.scratch_size])


def test_what_is_found_is_what_was_put_in() -> None:
    _, made, data = spliced()
    back = litert.read(data)
    (node,) = find(back.model)
    assert (node.operator, node.name, node.program) == (1, "npu", made)
    assert [back.tensor_index[name] for name in ("q",)] == list(node.inputs)
    assert [back.tensor_index[name] for name in ("p", "c")] == list(node.outputs)


def test_other_operators_and_the_borders_stay_as_they_are() -> None:
    model, _, data = spliced()
    before, after = model.graph, litert.read(data).graph
    assert (after.inputs, after.outputs) == (before.inputs, before.outputs)
    stays = [node for node in before.nodes if node.name not in ("c", "p")]
    assert [str(node) for node in after.nodes if "NeutronGraph" not in node.op] == [str(node) for node in stays]
    for node in stays:
        for name in (*node.inputs, *node.outputs):
            assert name is not None
            assert str(after[name]) == str(before[name])
            assert after[name].quant == before[name].quant


def test_what_nothing_uses_any_more_is_gone() -> None:
    _, _, data = spliced()
    file = litert.read(data).model
    names = [tensor.name.decode() for tensor in file.subgraphs[0].tensors]
    assert not {"unused", "c/weights", "c/bias"} & set(names)
    used = {0, *(tensor.buffer for tensor in file.subgraphs[0].tensors)}
    assert used == set(range(len(file.buffers)))
    assert {op.opcodeIndex for op in file.subgraphs[0].operators} == set(range(len(file.operatorCodes)))


def test_signatures_and_metadata_follow() -> None:
    _, _, data = spliced(signature=True)
    file = litert.read(data).model
    names = [tensor.name.decode() for tensor in file.subgraphs[0].tensors]
    (signature,) = file.signatureDefs
    assert [(e.name, names[e.tensorIndex]) for e in signature.inputs] == [(b"image", "x")]
    assert [(e.name, names[e.tensorIndex]) for e in signature.outputs] == [(b"pooled", "p"), (b"scores", "y")]
    assert file.buffers[file.metadata[0].buffer].data.tobytes() == b"kept as it is"


def test_bytes_are_the_same_each_time_and_the_source_is_left_alone() -> None:
    model = litert.read(mixed_file())
    before = pack(model.model)
    node, _ = program(model)
    steps = [0, node, *range(3, len(model.graph.nodes))]
    assert splice(model, steps) == splice(model, steps)
    assert pack(model.model) == before


def test_constants_are_aligned_for_a_device_that_reads_them_in_place() -> None:
    _, made, data = spliced()
    for blob in (made.microcode, made.weights):
        assert data.index(blob) % 16 == 0


def test_a_graph_as_one_node_runs_as_the_graph() -> None:
    part = extract(litert.read(mixed_file()).graph, ON_NPU)
    made = compile_graph(part, TARGET).program
    data = graph_file(part, made)
    assert data == graph_file(part, made)
    q = np.random.default_rng(0).integers(-128, 128, (1, 8, 8, 4), np.int8)
    for got, want in zip(FileSimulator(data).run([q]), interpret(litert.write(part), [q]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_names_that_are_taken_are_not_taken_twice() -> None:
    model = litert.read(mixed_file())
    node, _ = program(model)
    first = splice(model, [0, node, *range(3, len(model.graph.nodes))])
    again = litert.read(first)
    part = extract(again.graph, (3,))
    other = NeutronNode("npu", part.inputs, part.outputs, compile_graph(part, TARGET).program)
    found = find(litert.read(splice(again, [0, 1, 2, other, *range(4, len(again.graph.nodes))])).model)
    assert [node.name for node in found] == ["npu", "npu#1"]


def test_a_cut_computes_what_the_whole_file_computes() -> None:
    data = mixed_file()
    model = litert.read(data)
    index = model.tensor_index
    x = np.random.default_rng(0).standard_normal((1, 8, 8, 4)).astype(np.float32)
    whole = interpret(data, [x])
    first = interpret(cut(model.model, (0, 1, 2), [index["x"]], [index["p"], index["c"]]), [x])
    rest = cut(model.model, tuple(range(3, 9)), [index["c"], index["p"]], [index["y"]])
    (y,) = interpret(rest, [first[1], first[0]])
    np.testing.assert_array_equal(first[0], whole[1])
    np.testing.assert_array_equal(y, whole[0])


def damaged(change: str) -> bytes:
    """The spliced file with one thing wrong about its NeutronGraph."""
    _, made, data = spliced()
    file = litert.read(data).model
    main = file.subgraphs[0]
    operator = main.operators[1]
    microcode = file.buffers[main.tensors[operator.inputs[1]].buffer]
    if change == "two inputs":
        operator.inputs = operator.inputs[:2]
    elif change == "no profile":
        operator.outputs = operator.outputs[:-1]
    elif change == "a byte":
        microcode.data = microcode.data.copy()
        microcode.data[200] ^= 1
    elif change == "cut short":
        microcode.data = microcode.data[:64].copy()
        main.tensors[operator.inputs[1]].shape = np.array([64], np.int32)
    elif change == "another format":
        words = np.frombuffer(made.microcode, "<u4").copy()
        words[1] = 7
        other = with_checksum(Program(words.tobytes(), made.weights, made.kernels))
        microcode.data = np.frombuffer(other.microcode, np.uint8)
    return pack(file)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("two inputs", "it has 2 inputs; microcode, weights and kernels alone are 3. Compile the model again."),
        ("no profile", "it has 4 inputs and 4 outputs; its microcode wants 4 and 5. Compile the model again."),
        ("a byte", "program: the microcode's checksum is wrong. The file is corrupt."),
        ("cut short", "microcode: it is 64 bytes; its header alone has 128."),
        (
            "another format",
            "microcode: its version word is 0x00000007, and OpenNeutron's start with 0x4f4e: another compiler made it, such as "
            "NXP's eIQ Neutron converter, and only NXP's firmware runs that. Compile the model with OpenNeutron to run it here.",
        ),
    ],
)
def test_a_damaged_node_says_what_is_wrong(change: str, message: str) -> None:
    with pytest.raises(InvalidProgramError) as caught:
        find(litert.read(damaged(change)).model)
    assert str(caught.value) == f"NeutronGraph (operator 1): {message}"
