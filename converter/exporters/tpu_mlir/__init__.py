"""Export to the ``tpu`` dialect of the vendor's compiler: MLIR text and an .npz file of weights."""
