# SPDX-License-Identifier: BSD-3-Clause
"""Model Explorer's extensions: an adapter for compiled files, and a provider of overlays."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from model_explorer import (
    Adapter,
    AdapterMetadata,
    GetConfigEditorsResult,
    ModelExplorerGraphs,
    NodeDataProvider,
    NodeDataProviderFilter,
    NodeDataProviderMetadata,
    NodeDataProviderResult,
)
from model_explorer.graph_builder import (
    Graph,
    GraphNode,
    GraphNodeStyle,
    GroupNodeConfig,
    IncomingEdge,
    KeyValue,
    MetadataItem,
)
from model_explorer.node_data_builder import GradientItem, GraphNodeData, NodeDataResult

from openneutron.errors import OpenNeutronError
from openneutron.features.explorer.nodes import GRAPH, OVERLAYS, Node, nodes_of, values_of
from openneutron.features.report.page.data import ON_CPU
from openneutron.isa.rows import KERNEL_BY_NAME

ID = "openneutron"
EXTENSIONS = ["pte", "tflite"]
SOURCE = "https://pypi.org/project/openneutron"

CPU_STYLE = GraphNodeStyle(backgroundColor="#f7d9de", borderColor="#c23b4e")
PARTITIONS = GroupNodeConfig(namespaceRegex="^NPU partition [0-9]+$", backgroundColor="#e6effb", borderColor="#2f6fc4")


class CompiledFileAdapter(Adapter):  # type: ignore[misc]
    """The adapter through which Model Explorer reads compiled ``.pte`` and ``.tflite`` files. The graph has a group
    for each partition. If the file has report data, this group has subgroups for the model's modules."""

    metadata = AdapterMetadata(
        id=ID,
        name="OpenNeutron",
        description="Compiled .pte and .tflite files: partitions with their kernel calls, operators on the CPU with their reasons",
        source_repo=SOURCE,
        fileExts=EXTENSIONS,
    )

    def __init__(self) -> None:
        super().__init__()

    def convert(self, model_path: str, settings: dict[str, Any]) -> ModelExplorerGraphs:
        """Return the graph of a compiled file."""
        nodes = nodes_of(Path(model_path))
        return {
            "graphs": [
                Graph(GRAPH, [_node(index, node) for index, node in enumerate(nodes)], groupNodeConfigs=[PARTITIONS])
            ]
        }


def _node(index: int, node: Node) -> GraphNode:
    shape, kernel = "x".join(map(str, node.shape)), KERNEL_BY_NAME.get(node.label.partition(":")[0])
    bits = 8 * (kernel.element_bytes("output") if kernel is not None else 1)
    return GraphNode(
        id=str(index),
        label=node.label,
        namespace=node.group,
        attrs=[KeyValue(name, text) for name, text in node.attributes.items()],
        incomingEdges=[
            IncomingEdge(sourceNodeId=str(source), targetNodeInputId=str(place))
            for place, source in enumerate(node.inputs)
        ],
        outputsMetadata=[MetadataItem("0", [KeyValue("shape", f"int{bits}[{shape}]")])] if shape else [],
        style=CPU_STYLE if node.kind == ON_CPU else None,
    )


class CompiledFileOverlays(NodeDataProvider):  # type: ignore[misc]
    """The provider of the overlays: latency, memory and accuracy of the nodes of a compiled file."""

    metadata: ClassVar[list[NodeDataProviderMetadata]] = [
        NodeDataProviderMetadata(
            id=f"{ID}_{overlay.key}",
            name=overlay.name,
            description=f"{overlay.name}, of a compiled file",
            source_repo=SOURCE,
            filter=NodeDataProviderFilter(adapterIds=[ID]),
        )
        for overlay in OVERLAYS
    ]

    def __init__(self) -> None:
        super().__init__()

    def get_config_editors(self, provider_id: str) -> GetConfigEditorsResult:
        """Return the settings of an overlay: it has none."""
        return GetConfigEditorsResult(configEditors=[])

    def run(
        self, provider_id: str, model_path: str, graph_id: str, config_values: dict[str, Any], graph: Graph | None
    ) -> NodeDataProviderResult:
        """Return the values of an overlay by node. If there are none, the result has an error in words."""
        overlay = next(item for item in OVERLAYS if provider_id == f"{ID}_{item.key}")
        try:
            values = values_of(overlay, nodes_of(Path(model_path)))
        except OpenNeutronError as error:
            return NodeDataProviderResult(error=str(error))
        if not values:
            return NodeDataProviderResult(
                error=f"{overlay.name}: the file has no such values. Compile the model with --facts."
            )
        gradient = [GradientItem(0, overlay.smallest), GradientItem(1, overlay.largest)]
        results = {key: NodeDataResult(value) for key, value in values.items()}
        return NodeDataProviderResult(result=GraphNodeData(results=results, name=overlay.name, gradient=gradient))
