# Everything works from a fresh clone: each target makes .venv by itself and installs into it what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# One thread for matrix products: the tests are many and small.
export OPENBLAS_NUM_THREADS ?= 1

# The engine is built again when its sources change.
KERNELS := setup.py runtime/kernels/CMakeLists.txt $(wildcard runtime/kernels/*/*.* runtime/kernels/*/*/*)
SANITIZED := build/sanitize
# Leaks are the interpreter's: it does not free everything when it ends. A huge size is refused as malloc refuses it.
UNDER_SANITIZERS = env TPUCONVERT_NATIVE_LIBRARY="$$(ls $(abspath $(SANITIZED))/_native*.so)" \
  LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1

.PHONY: help demo docs figures dist audit test test-nightly sanitize zoo nnsmith vendor-env test-vendor accuracy accuracy-vendor nightly lint lint-python lint-page format clean
help:
	@echo "make demo          convert, quantize and evaluate the bundled example in all three formats"
	@echo "make test          the tests, without the long ones"
	@echo "make test-nightly  all tests"
	@echo "make sanitize      the tests of the native engine, built with AddressSanitizer and UndefinedBehaviorSanitizer"
	@echo "make zoo           networks from PyTorch's exporters, converted to INT8; installs PyTorch into build/zoo-venv"
	@echo "make nnsmith       graphs of NNSmith, compared with ONNX Runtime; installs PyTorch into build/nnsmith-venv"
	@echo "make vendor-env    the vendor's compiler and simulator in build/vendor; needs Python 3.10 on Linux x86-64"
	@echo "make test-vendor   exports, compiled and compared in the vendor's simulator"
	@echo "make accuracy      trained models of public packages in INT8, compared with docs/inside/accuracy-trained.json"
	@echo "make accuracy-vendor  the same models, quantized by the vendor's compiler; needs Python 3.10 on Linux x86-64"
	@echo "make nightly       test-nightly, sanitize, zoo, nnsmith and accuracy"
	@echo "make dist          a release in dist/, built by pinned packages, with its bill of materials"
	@echo "make audit         known vulnerabilities of these packages"
	@echo "make docs          the documentation as a site, in build/site"
	@echo "make figures       measured figures of the documentation, and commits since that changed their code"
	@echo "make lint          ruff and mypy --strict; Biome for the scripts and style sheets of the report (needs Node.js)"
	@echo "make format        let ruff and Biome sort imports and lay out the code"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tpuconvert needs Python 3.11 or newer, $(PYTHON) is older: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(READY): setup.cfg pyproject.toml $(KERNELS) | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --editable '.[dev,oracles,browser]' || { \
	  echo "without the other engines, then: the tests that need them are skipped" >&2; \
	  $(BIN)/python -m pip install --quiet --editable '.[dev,browser]'; } || { \
	  echo "without the browser driver too: the tests that need it are skipped" >&2; \
	  $(BIN)/python -m pip install --quiet --editable '.[dev]'; }
	@touch $@

demo: $(READY)
	$(BIN)/tpuconvert demo

# A file's tests run one after the other, in one process: some use what others made.
PARALLEL := -n auto --dist loadfile

test: $(READY)
	$(BIN)/pytest -q $(PARALLEL) -m "not slow and not vendor"

test-nightly: $(READY)
	$(BIN)/pytest -q $(PARALLEL) --durations=20

sanitize: $(READY)
	$(BIN)/cmake -S runtime/kernels -B $(SANITIZED) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	  -DPython_EXECUTABLE=$(abspath $(BIN))/python -DTPUCONVERT_SANITIZE=ON
	$(BIN)/cmake --build $(SANITIZED)
	$(UNDER_SANITIZERS) $(BIN)/pytest -q tests/runtime/native tests/runtime/kernels -m "not slow and not vendor"
	$(UNDER_SANITIZERS) $(BIN)/pytest -q tests/runtime/native/test_hostile_*.py -m slow

# PyTorch has an environment for itself; setup.cfg has its version.
ZOO := build/zoo
ZOO_BIN := build/zoo-venv/bin
EXTRA = import configparser; p = configparser.ConfigParser(); p.read('setup.cfg'); print(p['options.extras_require']['$(1)'])

build/zoo-venv/.ready: setup.cfg
	$(PYTHON) -m venv build/zoo-venv
	$(ZOO_BIN)/python -m pip install --quiet $$($(PYTHON) -c "$(call EXTRA,zoo)")
	@touch $@

zoo: $(READY) build/zoo-venv/.ready
	$(BIN)/python -m pip install --quiet --editable '.[oracles]'
	$(ZOO_BIN)/python -m tools.zoo make $(ZOO)
	$(BIN)/python -m tools.zoo run $(ZOO) --markdown build/exporters.md

# So has NNSmith. The graphs of a run have fresh seeds.
NNSMITH := build/nnsmith
NNSMITH_SEED ?= $(shell date +%s)

build/nnsmith-venv/.ready: setup.cfg
	$(PYTHON) -m venv build/nnsmith-venv
	build/nnsmith-venv/bin/python -m pip install --quiet $$($(PYTHON) -c "$(call EXTRA,nnsmith)")
	@touch $@

nnsmith: $(READY) build/nnsmith-venv/.ready
	rm -rf $(NNSMITH)
	build/nnsmith-venv/bin/python -W ignore -m tools.zoo.nnsmith_graphs make $(NNSMITH) --seed $(NNSMITH_SEED) --count 500
	for chip in bm1684 bm1686; do for mode in float int8; do \
	  $(BIN)/python -m tools.zoo.nnsmith_graphs run $(NNSMITH) --chip $$chip --mode $$mode || exit 1; done; done

# The vendor's package has wheels for Python 3.10 only: PYTHON310=/path/to/python3.10 names one.
PYTHON310 ?=
VENDOR := build/vendor
VENDOR_ENVIRONMENT = $(BIN)/python -m tools.release.vendor_environment $(addprefix --python ,$(PYTHON310))

vendor-env: $(VENDOR)/environment.json

$(VENDOR)/environment.json: | $(READY)
	$(VENDOR_ENVIRONMENT) $(VENDOR)

test-vendor: $(READY) $(VENDOR)/environment.json
	TPU_MLIR_HOME=$(abspath $(VENDOR))/lib/python3.10/site-packages/tpu_mlir \
	  VENDOR_PYTHON=$(abspath $(VENDOR))/bin/python $(BIN)/pytest -q $(PARALLEL) -m vendor tests/vendor

# Wheels are downloaded once, into the cache folder of the user.
accuracy: $(READY)
	$(BIN)/python -m pip install --quiet --editable '.[bench,images]'
	$(BIN)/python -m tools.accuracy trained --quantizers float default --fresh --compare

# The environment with the vendor's calibration has PyTorch. Without NETWORKS all models, which takes hours.
CALIBRATION := build/vendor-calibration
NETWORKS ?=

$(CALIBRATION)/environment.json: | $(READY)
	$(VENDOR_ENVIRONMENT) $(CALIBRATION) --calibration

accuracy-vendor: $(READY) $(CALIBRATION)/environment.json
	$(BIN)/python -m pip install --quiet --editable '.[bench,images]'
	TPU_MLIR_HOME=$(abspath $(CALIBRATION))/lib/python3.10/site-packages/tpu_mlir \
	  VENDOR_PYTHON=$(abspath $(CALIBRATION))/bin/python \
	  $(BIN)/python -m tools.accuracy trained $(NETWORKS) --quantizers tpu-mlir --update

nightly: test-nightly sanitize zoo nnsmith accuracy

# A release is built by pinned packages, in an environment for it. SOURCE_DATE_EPOCH fixes the times in the archives.
DIST_BIN := build/dist-venv/bin

dist:
	$(PYTHON) -m venv --clear build/dist-venv
	$(DIST_BIN)/python -m pip install --quiet --require-hashes -r tools/release/build_requirements.txt
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) PATH="$(abspath $(DIST_BIN)):$$PATH" \
	  $(DIST_BIN)/python -m build --no-isolation --outdir dist
	$(PYTHON) -m venv --clear --without-pip build/sbom-venv
	$(DIST_BIN)/python -m pip --python build/sbom-venv install --quiet dist/*.whl
	$(DIST_BIN)/python -m pip install --quiet cyclonedx-bom
	$(DIST_BIN)/cyclonedx-py environment --output-reproducible --output-file dist/tpuconvert.cdx.json build/sbom-venv

# Known vulnerabilities of the pinned packages; needs a network.
audit: $(BIN)/python
	$(BIN)/python -m pip install --quiet pip-audit
	$(BIN)/pip-audit --strict --disable-pip --require-hashes -r tools/release/build_requirements.txt

figures: $(READY)
	$(BIN)/python -m tools.pages.figure_age

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "build/site/index.html"

# Biome checks scripts and style sheets. package-lock.json fixes its version, npm writes the target.
BIOME := node_modules/.package-lock.json

$(BIOME): package-lock.json
	@command -v npm >/dev/null || { \
	  echo "the linter of the report's scripts needs Node.js 18 or newer, with npm: 'apt-get install npm' on Debian and" \
	    "Ubuntu, 'brew install node' on macOS, or https://nodejs.org. 'make lint-python' checks the rest." >&2; exit 2; }
	npm ci --no-audit --no-fund --loglevel=error
	@touch $@

lint: lint-python lint-page

lint-page: $(BIOME)
	node_modules/.bin/biome check --error-on-warnings

lint-python: $(READY)
	$(BIN)/ruff check .
	$(BIN)/python -m tools.release.package_view build/view
	$(BIN)/mypy -p tpuconvert
	$(BIN)/mypy tools
	$(BIN)/mypy examples/digits

format: $(READY) $(BIOME)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	node_modules/.bin/biome check --write

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
