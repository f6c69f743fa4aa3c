#!/bin/bash
# Compile the engine for kernel_fuzzer.py, with coverage for libFuzzer and sanitizers:
#     tests/fuzzing/native/build_engine.sh FOLDER ["core;movement"]
# The second argument names folders of kernels, since all of them take long. Uses clang++, or CXX, and the nanobind of
# python, or PYTHON. Signed sums wrap (-fwrapv): the planner proves that they fit, and the fuzzer looks for wrong accesses
# with arguments that the planner never passes.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
cmake -S "$root/runtime/kernels" -B "$1" -G Ninja -DPython_EXECUTABLE="$(command -v "${PYTHON:-python}")" \
  -DCMAKE_CXX_COMPILER="${CXX:-clang++}" "-DCMAKE_CXX_FLAGS=-fsanitize=fuzzer-no-link -fwrapv" -DTPUCONVERT_SANITIZE=ON \
  -DTPUCONVERT_KERNELS="${2:-.}"
cmake --build "$1"
