#!/bin/bash
# Compile the libFuzzer target of plans: tests/fuzzing/native/build.sh FOLDER. Uses clang++, or CXX and CXXFLAGS.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
kernels=$root/runtime/kernels
compiler=${CXX:-clang++}
flags=(${CXXFLAGS:--g -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined})
engine=${LIB_FUZZING_ENGINE:--fsanitize=fuzzer}
"$compiler" "${flags[@]}" -std=c++17 -pthread $engine -I "$kernels" -o "$1/program_fuzzer" \
  "$root/tests/fuzzing/native/program_fuzzer.cpp" \
  "$kernels"/core/{aligned,isa,kernel_table,program,thread_pool}.cpp \
  "$kernels"/movement/{copy,gather,index_select}.cpp
