"""ONNX, for ONNX Runtime on any system, in browsers and on phones: one file for the draft, one for pictures.

The draft takes any number of rows. Its cache goes in and comes out; see `exporters.onnx_graph`.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from torch import nn

from pixdraft.export.errors import ExportError
from pixdraft.export.exporters import Artefact
from pixdraft.export.graph import DraftGraph, PictureGraph
from pixdraft.export.recipe import FLOAT, Recipe
from pixdraft.export.source import Source

DRAFT, DECODER = "draft.onnx", "decoder.onnx"

_KEPT = ("risk.down", "risk.up")
"""Layers that stay float32 unless a recipe names them: what they say decides what is asked, and they weigh nothing."""

_LARGEST = 2 << 30
"""Bytes that one file may hold; what protobuf can count."""


class OnnxExporter:
    """Implements `pixdraft.export.exporters.Exporter`."""

    target = "onnx"
    schemes = ("fp32", "fp16", "int8", "int8b", "int4")
    finer = {"int4": "int8b"}
    decoders = ("fp32", "fp16", "int8")
    packages = ("onnx", "onnxscript", "onnxruntime", "optimum", "optimum-onnx", "torch")
    minimum = {"onnxruntime": "1.32"}

    def export(self, source: Source, recipe: Recipe, folder: Path) -> Artefact:
        """See `Exporter.export`."""
        graph = _graph(source)
        schemes = self._schemes(graph, recipe)
        decoder = self._decoder(recipe)
        try:
            import onnx

            from pixdraft.export.exporters import onnx_graph
            from pixdraft.export.exporters.onnx_quantise import quantise
            from pixdraft.export.exporters.onnx_store import store
        except ImportError as error:
            raise ExportError(f"a package is missing ({error}): pip install 'pixdraft[export]'") from error
        model = quantise(onnx_graph.draft_model(graph), schemes)
        picture = onnx_graph.decoder_model(PictureGraph(source.tokenizer), source.info.image_tokens)
        for name, made in ((DRAFT, model), (DECODER, store(picture, decoder))):
            if (size := made.ByteSize()) >= _LARGEST:
                raise ExportError(f"{name} would take {size / 1e9:.1f} GB and may take 2: export it with fewer bits")
            onnx.checker.check_model(made)
            onnx.save(made, folder / name)
        facts = {
            "opset": next(part.version for part in model.opset_import if not part.domain),
            "ir": model.ir_version,
            "capacity": graph.capacity,
        }
        delegation = {"draft": _run(folder / DRAFT), "decoder": _run(folder / DECODER)}
        return Artefact(DRAFT, DECODER, facts, delegation, decoder)

    def mirror(self, source: Source, recipe: Recipe) -> DraftGraph:
        """See `pixdraft.export.exporters.Mirrored`: the weights are the file's, activations stay float32."""
        import copy

        from pixdraft.export.exporters.onnx_quantise import rounded

        graph = copy.deepcopy(_graph(source))
        for name, scheme in self._schemes(graph, recipe).items():
            weight = graph.get_parameter(f"{name}.weight")
            weight.data = rounded(weight.data, scheme)
        return graph

    def _schemes(self, graph: DraftGraph, recipe: Recipe) -> dict[str, str]:
        """Scheme of every linear layer by name."""
        layers = [name for name, module in graph.named_modules() if isinstance(module, nn.Linear)]
        recipe.check(self.target, self.schemes, layers)
        return {
            layer: FLOAT if layer in _KEPT and layer not in recipe.overrides else recipe.of(layer) for layer in layers
        }

    def _decoder(self, recipe: Recipe) -> str:
        # Of the bundled decoder, int8 weights give pictures of 58 dB against fp32, float16 of 71; neither runs slower.
        recipe.check_decoder(self.target, self.decoders)
        return recipe.decoder or (recipe.scheme if recipe.scheme in ("fp32", "fp16") else "int8")


EXPORTER = OnnxExporter()


def _graph(source: Source) -> DraftGraph:
    return DraftGraph(source.network, source.network.config.length)


def _run(path: Path) -> dict[str, dict[str, int]]:
    """Operators of a model once ONNX Runtime has fused them; its CPU provider, which has every one, leaves none."""
    import onnx
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(Path(folder) / "fused.onnx")
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        fused = onnx.load(options.optimized_model_filepath)
    return {"delegated": dict(Counter(node.op_type for node in fused.graph.node)), "left": {}}
