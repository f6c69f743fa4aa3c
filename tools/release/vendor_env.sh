#!/usr/bin/env bash
# Install the vendor's compiler and simulator into a virtual environment: vendor_env.sh FOLDER [PYTHON3.10]
#
# About 1 GB. Of the package's requirements the compiler and the simulator need only NumPy. The other packages are imported
# by its TPULang API.
set -euo pipefail
folder=$1
python=${2:-python3.10}
version=1.30.2
if ! "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 10))' 2>/dev/null; then
  echo "vendor_env.sh: '$python' is not Python 3.10, the only version that tpu_mlir $version has wheels for;" \
    "name one: make vendor-env PYTHON310=/path/to/python3.10" >&2
  exit 2
fi
"$python" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile numpy==1.24.3 \
  filelock flatbuffers==24.12.23 opencv-python-headless==4.8.0.76 pandas==2.0.3 Pillow==10.0.0 plotly==5.15.0 psutil rich \
  tqdm==4.65.0
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile "tpu_mlir==$version"
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
