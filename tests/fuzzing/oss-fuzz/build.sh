#!/bin/bash
# Build all fuzzing targets for OSS-Fuzz: the libFuzzer target of plans, and a program per reader with Atheris.
set -eu
cd "$SRC/tpuconvert"
tests/fuzzing/native/build.sh "$OUT"
pip3 install --require-hashes -r tools/release/build_requirements.txt
pip3 install --no-build-isolation '.[images,dev]'
for target in onnx tflite caffemodel prototxt tpum arrays manifest preprocess ranges; do
  launcher=$SRC/reader_$target.py
  cat > "$launcher" <<PYTHON
import sys

sys.path.insert(0, "$SRC/tpuconvert")
sys.argv.insert(1, "$target")
from tests.fuzzing.reader_fuzzer import main

main()
PYTHON
  compile_python_fuzzer "$launcher"
  if [ -d "tests/fuzzing/corpus/$target" ]; then
    zip -jqr "$OUT/reader_${target}_seed_corpus.zip" "tests/fuzzing/corpus/$target"
  fi
done
