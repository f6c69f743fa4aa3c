#!/usr/bin/env bash
# Install the vendor's compiler and simulator into a virtual environment: vendor_env.sh FOLDER [PYTHON3.10] [calibration]
#
# About 1 GB. Of the package's requirements the compiler and the simulator need only NumPy. The other packages are imported
# by its TPULang API.
# With 'calibration', also what its programs model_transform and run_calibration import for an ONNX model: all requirements
# of its extra onnx, and PyTorch, which they import and, with their default options, do not call. PyTorch's build without
# CUDA is enough: with the default index of pip it is several GB.
set -euo pipefail
folder=$1
python=${2:-python3.10}
kind=${3:-compiler}
version=1.30.2
if ! "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 10))' 2>/dev/null; then
  echo "vendor_env.sh: '$python' is not Python 3.10, the only version that tpu_mlir $version has wheels for;" \
    "name one: make vendor-env PYTHON310=/path/to/python3.10" >&2
  exit 2
fi
if [ "$kind" != compiler ] && [ "$kind" != calibration ]; then
  echo "vendor_env.sh: '$kind' is neither compiler nor calibration" >&2
  exit 2
fi
"$python" -m venv "$folder"
install() {
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile "$@"
}
case $kind in
  compiler)
    install numpy==1.24.3 filelock flatbuffers==24.12.23 opencv-python-headless==4.8.0.76 pandas==2.0.3 Pillow==10.0.0 \
      plotly==5.15.0 psutil rich tqdm==4.65.0
    install --no-deps "tpu_mlir==$version"
    ;;
  calibration)
    # Neither extra lists filelock, flatbuffers and psutil. The version of torch is that of its extra torch.
    install filelock flatbuffers==24.12.23 psutil torch==2.11.0 "tpu_mlir[onnx]==$version"
    ;;
esac
home=$folder/lib/python3.10/site-packages/tpu_mlir
# The package contains the C library of Ubuntu 22.04. Under the loader of another system its programs crash with it.
mkdir -p "$home/lib/unused"
for name in libc.so.6 libm.so.6 libpthread.so.0; do
  if [ -e "$home/lib/third_party/$name" ]; then
    mv "$home/lib/third_party/$name" "$home/lib/unused/"
  fi
done
TPUC_ROOT=$home "$home/bin/tpuc-opt" --version >/dev/null
touch "$folder/.ready"
