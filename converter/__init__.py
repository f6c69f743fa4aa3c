"""tpuconvert: converts ONNX, TFLite and Caffe networks to the SOPHON TPU operator set and runs them bit-exactly.

    import tpuconvert as tc

    model = tc.convert("model.onnx", chip="bm1686", quantize="int8", calibration="images/")
    model.save("model.tpum")
    with tc.Session(model) as session:
        outputs = session.run({"x": batch})

Importing this package loads nothing else: every name below is imported when it is first used.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

TYPE_CHECKING = False  # type checkers take it for True; typing takes longer to import than this module

if TYPE_CHECKING:
    from typing import Any

    from tpuconvert.cli.progress_bar import show_progress as show_progress
    from tpuconvert.conversion.calibrate import calibrate as calibrate
    from tpuconvert.conversion.check import Check as Check
    from tpuconvert.conversion.check import check as check
    from tpuconvert.conversion.convert import convert as convert
    from tpuconvert.conversion.options.packed_weights import PackedWeights as PackedWeights
    from tpuconvert.conversion.options.quantization import Quantization as Quantization
    from tpuconvert.conversion.options.source import SourceOptions as SourceOptions
    from tpuconvert.conversion.passes import PassList as PassList
    from tpuconvert.conversion.passes import passes as passes
    from tpuconvert.conversion.quantization.ranges_file import MeasuredRanges as MeasuredRanges
    from tpuconvert.conversion.quantize import quantize as quantize
    from tpuconvert.conversion.reproduction import Reproduction as Reproduction
    from tpuconvert.conversion.reproduction import reproduce as reproduce
    from tpuconvert.device.compare import DumpComparison as DumpComparison
    from tpuconvert.device.device import DevicePlan as DevicePlan
    from tpuconvert.device.device import GoldenCheck as GoldenCheck
    from tpuconvert.device.device import device_check as device_check
    from tpuconvert.device.device import device_compare as device_compare
    from tpuconvert.device.device import device_plan as device_plan
    from tpuconvert.device.setup import DeviceSetup as DeviceSetup
    from tpuconvert.device.setup import device_setup as device_setup
    from tpuconvert.diff.compare import diff as diff
    from tpuconvert.diff.result import ModelDifference as ModelDifference
    from tpuconvert.doctor.doctor import Diagnosis as Diagnosis
    from tpuconvert.doctor.doctor import doctor as doctor
    from tpuconvert.doctor.installation import Installation as Installation
    from tpuconvert.doctor.installation import installation as installation
    from tpuconvert.evaluation.evaluation import evaluate as evaluate
    from tpuconvert.evaluation.result import Evaluation as Evaluation
    from tpuconvert.exporters.export import Export as Export
    from tpuconvert.exporters.export import export as export
    from tpuconvert.frontends.registry import register_converter as register_converter
    from tpuconvert.model.model import Model as Model
    from tpuconvert.model.model import load as load
    from tpuconvert.operators.op_test import OpTests as OpTests
    from tpuconvert.operators.op_test import op_test as op_test
    from tpuconvert.operators.ops import OperatorExplanation as OperatorExplanation
    from tpuconvert.operators.ops import OperatorList as OperatorList
    from tpuconvert.operators.ops import describe_op as describe_op
    from tpuconvert.operators.ops import ops as ops
    from tpuconvert.optimizer.engine.engine import Skip as Skip
    from tpuconvert.optimizer.engine.pattern import pattern as pattern
    from tpuconvert.optimizer.pipeline import register_rule as register_rule
    from tpuconvert.optimizer.quantize.ranges.calibrators import register_calibrator as register_calibrator
    from tpuconvert.optimizer.quantize.ranges.ranges import Range as Range
    from tpuconvert.outputs.drawing import Drawing as Drawing
    from tpuconvert.outputs.head import register_head as register_head
    from tpuconvert.precision.attribution import Attribution as Attribution
    from tpuconvert.precision.attribution import attribute as attribute
    from tpuconvert.precision.tune import Tuning as Tuning
    from tpuconvert.precision.tune import tune as tune
    from tpuconvert.reduction.reduce import reduce as reduce
    from tpuconvert.reduction.result import Reduction as Reduction
    from tpuconvert.report.inspect import Inspection as Inspection
    from tpuconvert.report.inspect import inspect as inspect
    from tpuconvert.report.report import report as report
    from tpuconvert.run.bench import Benchmark as Benchmark
    from tpuconvert.run.bench import bench as bench
    from tpuconvert.run.generate import generate as generate
    from tpuconvert.run.language.generation import Generation as Generation
    from tpuconvert.run.language.generation import Token as Token
    from tpuconvert.run.language.generator import Generator as Generator
    from tpuconvert.run.language.generator import TokenStream as TokenStream
    from tpuconvert.run.language.sampling import Sampling as Sampling
    from tpuconvert.run.session import Session as Session
    from tpuconvert.runtime.custom_kernel import NativeKernel as NativeKernel
    from tpuconvert.runtime.custom_kernel import include_folder as include_folder
    from tpuconvert.runtime.session.border import TensorInfo as TensorInfo
    from tpuconvert.samples.preprocess import Preprocess as Preprocess
    from tpuconvert.schema.definition.op import Op as Op
    from tpuconvert.schema.definition.op import Operand as Operand
    from tpuconvert.schema.definition.op import register_op as register_op
    from tpuconvert.schema.errors import AmbiguousInputError as AmbiguousInputError
    from tpuconvert.schema.errors import CorruptInputError as CorruptInputError
    from tpuconvert.schema.errors import InternalError as InternalError
    from tpuconvert.schema.errors import MissingExtraError as MissingExtraError
    from tpuconvert.schema.errors import PluginError as PluginError
    from tpuconvert.schema.errors import ResourceLimitError as ResourceLimitError
    from tpuconvert.schema.errors import RunError as RunError
    from tpuconvert.schema.errors import ShapeError as ShapeError
    from tpuconvert.schema.errors import ThresholdError as ThresholdError
    from tpuconvert.schema.errors import TpuConvertError as TpuConvertError
    from tpuconvert.schema.errors import UnsupportedError as UnsupportedError
    from tpuconvert.schema.errors import UsageError as UsageError
    from tpuconvert.schema.graph.graph import Graph as Graph
    from tpuconvert.schema.system.limits import limited as limited
    from tpuconvert.schema.types import Chip as Chip
    from tpuconvert.schema.types import DType as DType
    from tpuconvert.schema.types import QuantParams as QuantParams
    from tpuconvert.schema.types import TensorType as TensorType
    from tpuconvert.verify.metrics import register_metric as register_metric
    from tpuconvert.verify.verification import Verification as Verification
    from tpuconvert.verify.verify import verify as verify

    __version__: str

_MODULES = {
    "tpuconvert.run.bench": ("Benchmark", "bench"),
    "tpuconvert.conversion.calibrate": ("calibrate",),
    "tpuconvert.conversion.check": ("Check", "check"),
    "tpuconvert.conversion.options.packed_weights": ("PackedWeights",),
    "tpuconvert.conversion.options.quantization": ("Quantization",),
    "tpuconvert.conversion.options.source": ("SourceOptions",),
    "tpuconvert.device.device": ("DevicePlan", "GoldenCheck", "device_check", "device_compare", "device_plan"),
    "tpuconvert.device.setup": ("DeviceSetup", "device_setup"),
    "tpuconvert.run.generate": ("generate",),
    "tpuconvert.run.language.generation": ("Generation", "Token"),
    "tpuconvert.run.language.generator": ("Generator", "TokenStream"),
    "tpuconvert.run.language.sampling": ("Sampling",),
    "tpuconvert.report.inspect": ("Inspection", "inspect"),
    "tpuconvert.operators.op_test": ("OpTests", "op_test"),
    "tpuconvert.operators.ops": ("OperatorExplanation", "OperatorList", "describe_op", "ops"),
    "tpuconvert.conversion.passes": ("PassList", "passes"),
    "tpuconvert.conversion.quantize": ("quantize",),
    "tpuconvert.reduction.reduce": ("reduce",),
    "tpuconvert.report.report": ("report",),
    "tpuconvert.verify.verify": ("verify",),
    "tpuconvert.cli.progress_bar": ("show_progress",),
    "tpuconvert.device.compare": ("DumpComparison",),
    "tpuconvert.doctor.doctor": ("Diagnosis", "doctor"),
    "tpuconvert.doctor.installation": ("Installation", "installation"),
    "tpuconvert.diff.compare": ("diff",),
    "tpuconvert.diff.result": ("ModelDifference",),
    "tpuconvert.outputs.drawing": ("Drawing",),
    "tpuconvert.outputs.head": ("register_head",),
    "tpuconvert.evaluation.evaluation": ("evaluate",),
    "tpuconvert.evaluation.result": ("Evaluation",),
    "tpuconvert.exporters.export": ("Export", "export"),
    "tpuconvert.frontends.registry": ("register_converter",),
    "tpuconvert.model.model": ("Model", "load"),
    "tpuconvert.optimizer.engine.engine": ("Skip",),
    "tpuconvert.optimizer.engine.pattern": ("pattern",),
    "tpuconvert.optimizer.quantize.ranges.ranges": ("Range",),
    "tpuconvert.conversion.convert": ("convert",),
    "tpuconvert.optimizer.quantize.ranges.calibrators": ("register_calibrator",),
    "tpuconvert.optimizer.pipeline": ("register_rule",),
    "tpuconvert.verify.metrics": ("register_metric",),
    "tpuconvert.conversion.quantization.ranges_file": ("MeasuredRanges",),
    "tpuconvert.reduction.result": ("Reduction",),
    "tpuconvert.conversion.reproduction": ("Reproduction", "reproduce"),
    "tpuconvert.samples.preprocess": ("Preprocess",),
    "tpuconvert.runtime.session.border": ("TensorInfo",),
    "tpuconvert.runtime.custom_kernel": ("NativeKernel", "include_folder"),
    "tpuconvert.schema.errors": (
        "AmbiguousInputError",
        "CorruptInputError",
        "InternalError",
        "MissingExtraError",
        "PluginError",
        "ResourceLimitError",
        "RunError",
        "ShapeError",
        "ThresholdError",
        "TpuConvertError",
        "UnsupportedError",
        "UsageError",
    ),
    "tpuconvert.schema.graph.graph": ("Graph",),
    "tpuconvert.schema.system.limits": ("limited",),
    "tpuconvert.schema.definition.op": ("Op", "Operand", "register_op"),
    "tpuconvert.schema.types": ("Chip", "DType", "QuantParams", "TensorType"),
    "tpuconvert.run.session": ("Session",),
    "tpuconvert.precision.tune": ("Tuning", "tune"),
    "tpuconvert.precision.attribution": ("Attribution", "attribute"),
    "tpuconvert.verify.verification": ("Verification",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [*sorted(_HOME), "__version__"]


if not TYPE_CHECKING:  # a type checker would accept every name

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            # This import takes 3 ms, and few programs read the version.
            from tpuconvert.installed import version

            return version()
        if name in _HOME:
            value = getattr(importlib.import_module(_HOME[name]), name)
            globals()[name] = value  # later accesses do not call __getattr__
            return value
        raise AttributeError(f"module 'tpuconvert' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """This package. Its functions keep their names when a subpackage with the same name is imported.

    ``verify``, ``quantize`` and ``report`` are functions of the public API, and subpackages that contain their code.
    Python would replace the function by the subpackage as soon as the latter is imported.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
