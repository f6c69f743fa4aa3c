"""Why some layer types have no converter, in words, with what to do about it."""

_LOSS = "measures a loss, which only training needs", "delete the layer, or end the network before it: --outputs BLOB"
_RUNTIME_BOXES = (
    "its windows depend on boxes that are computed at run time",
    "end the network before it (--outputs BLOB), or give a plugin",
)
_REASONS = {
    "ContrastiveLoss": _LOSS,
    "EuclideanLoss": _LOSS,
    "HingeLoss": _LOSS,
    "InfogainLoss": _LOSS,
    "MultinomialLogisticLoss": _LOSS,
    "MultiBoxLoss": _LOSS,
    "ROIPooling": _RUNTIME_BOXES,
    "PSROIPooling": _RUNTIME_BOXES,
    "ROIAlign": _RUNTIME_BOXES,
    "FlowWarp": ("samples at positions that are computed at run time", "end the network before it, or give a plugin"),
    "Correlation": ("its displacement windows have no operator", "end the network before it, or give a plugin"),
    "Unpooling": ("scatters to positions that are computed at run time", "use Deconvolution or Interp, or a plugin"),
    "Python": ("runs arbitrary code", "give a plugin that converts this layer: --plugin file.py"),
    "Recurrent": ("is the base of LSTM and RNN, not a layer of its own", "name the layer that is meant"),
}


def why_unsupported(layer_type: str) -> tuple[str, str]:
    """Message and next step for a layer type without a converter."""
    return _REASONS.get(
        layer_type,
        ("", "end the network before it (--outputs BLOB), or give a plugin that converts it (--plugin file.py)"),
    )
