"""Names of the export targets, apart from their code, which takes 150 ms to import."""

FORM_NAMES = ("tpu-mlir", "tpulang", "onnx")
"""The first is the default of ``export``."""
