#!/usr/bin/env bash
# Compiles the parts of the decoder that are not compiled yet, and combines all to one .bmodel file: ./compile.sh
#
# Needs TPU_MLIR_HOME, the folder of the installed package tpu_mlir. Weights that parts share are stored once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
for part in @PARTS@; do
  [ -s "$part/$part.bmodel" ] || "$part/compile.sh"
done
if [ ! -x "${TPU_MLIR_HOME:-}/bin/model_tool" ]; then
  echo "compile.sh: TPU_MLIR_HOME is '${TPU_MLIR_HOME:-}', expected the folder of the package tpu_mlir" >&2
  exit 2
fi
rm -f @NAME@.bmodel
"$TPU_MLIR_HOME/bin/model_tool" --combine @PROGRAMS@ -o @NAME@.bmodel >combine.log 2>&1 || {
  echo "compile.sh: the parts cannot be combined:" >&2
  tail -n 20 combine.log >&2
  exit 1
}
echo "@NAME@.bmodel for @CHIP@"
