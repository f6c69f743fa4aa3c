#!/usr/bin/env bash
# Compiles the exported module to a .bmodel file: ./compile.sh
#
# Needs TPU_MLIR_HOME, the folder of the installed package tpu_mlir. Only its program tpuc-opt is used.
# LAYER_GROUP_OPT is the compiler's level of layer grouping (default @LEVEL@). 1 compiles a YOLOv8 in 2 s instead of a minute.
# 0 compiles each layer alone, for when run_bmodel.py finds wrong integers. 3, a longer search, has given wrong results.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
name=@NAME@
chip=@CHIP@
log=$name.log
LAYER_GROUP_OPT=${LAYER_GROUP_OPT:-@LEVEL@}
if [ "$LAYER_GROUP_OPT" = 0 ]; then LAYER_GROUP_OPT=; fi
if [ ! -x "${TPU_MLIR_HOME:-}/bin/tpuc-opt" ]; then
  echo "compile.sh: TPU_MLIR_HOME is '${TPU_MLIR_HOME:-}', expected the folder of tpu_mlir @COMPILER@;" \
    "install it and set the variable, see README.md" >&2
  exit 2
fi
if ! sha256sum --quiet --check checksums.txt >&2; then
  echo "compile.sh: files changed after the export; export the model again" >&2
  exit 4
fi
: >"$log"
rm -f "$name.bmodel"
run_pass() {
  OMP_NUM_THREADS=1 TPUC_ROOT=$TPU_MLIR_HOME "$TPU_MLIR_HOME/bin/tpuc-opt" --mlir-disable-threading "$@" >>"$log" 2>&1 ||
    { echo "compile.sh: the compiler failed; the end of $log:" >&2
      grep -aE 'Assert|error:' "$log" >&2 || tail -n 20 "$log" >&2
      exit 1; }
}
# The passes write weight files with fixed names into the working folder. No model is named step-1: it is an identifier.
work=$(mktemp -d "$PWD/.compile.XXXXXX")
trap 'rm -rf "$work"' EXIT
log=$PWD/$log
cp "$name.mlir" "${name}_weights.npz" "$work"
cd "$work"
@PASSES@
if [ ! -s "$name.bmodel" ]; then
  echo "compile.sh: the compiler wrote no $name.bmodel; its log is $log" >&2
  exit 1
fi
mv "$name.bmodel" ..
echo "$name.bmodel for $chip"
