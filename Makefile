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

# Of all that draws fresh cases: printed, and one for all pieces of a night. SEED=N repeats a run.
SEED ?= $(shell date +%s)
override SEED := $(shell expr $(SEED) % 2147483648)

.PHONY: help demo docs figures dist sdist release-check release-dry-run audit test test-lowest test-nightly sanitize \
  mutations mutants fuzz-readers fuzz-kernels generators zoo nnsmith vendor-env test-vendor accuracy accuracy-vendor \
  nightly lint lint-python lint-page lint-workflows format clean
help:
	@echo "make demo          convert, quantize and evaluate the bundled example in all three formats"
	@echo "make test          the tests, without the long ones"
	@echo "make test-lowest   the same with the lowest allowed versions of the required packages"
	@echo "make test-nightly  all tests"
	@echo "make sanitize      the tests of the native engine, built with AddressSanitizer and UndefinedBehaviorSanitizer"
	@echo "make mutations     damaged files of every format, other ones than in the tests"
	@echo "make mutants       changed sources that a test has to notice; installs Cosmic Ray"
	@echo "make fuzz-readers  coverage-guided fuzzing of the readers; installs Atheris"
	@echo "make fuzz-kernels  coverage-guided fuzzing of the kernels with sanitizers; needs Clang, installs Atheris"
	@echo "make generators    random graphs compared with ONNX Runtime and LiteRT, for GENERATOR_SECONDS each"
	@echo "make zoo           networks from PyTorch's exporters, converted to INT8; installs PyTorch into build/zoo-venv"
	@echo "make nnsmith       graphs of NNSmith, compared with ONNX Runtime; installs PyTorch into build/nnsmith-venv"
	@echo "make vendor-env    the vendor's compiler and simulator in build/vendor; needs Python 3.10 on Linux x86-64"
	@echo "make test-vendor   exports, compiled and compared in the vendor's simulator"
	@echo "make accuracy      trained models of public packages in INT8, compared with docs/inside/accuracy-trained.json"
	@echo "make accuracy-vendor  the same models, quantized by the vendor's compiler; needs Python 3.10 on Linux x86-64"
	@echo "make nightly       the pieces of a night, or those of PIECES=\"...\", with a table of durations and findings"
	@echo "make dist          a release in dist/, built by pinned packages"
	@echo "make release-dry-run  a release with its bill of materials and notes, checked in new environments; not published"
	@echo "make audit         known vulnerabilities of these packages"
	@echo "make docs          the documentation as a site, in build/site"
	@echo "make figures       measured figures of the documentation, and commits since that changed their code"
	@echo "make lint          ruff and mypy --strict; Biome for the scripts and style sheets of the report (needs Node.js);"
	@echo "                   actionlint and zizmor for the workflows"
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

# Hypothesis draws fresh cases too; its default on a CI server is a fixed seed.
test-nightly: $(READY)
	TPUCONVERT_TEST_SEED=$(SEED) $(BIN)/pytest -q $(PARALLEL) --durations=20 \
	  --hypothesis-profile=default --hypothesis-seed=$(SEED)

# An environment with what setup.cfg requires, in the lowest versions, and the packages of the tests.
LOWEST_BIN := build/lowest-venv/bin

test-lowest: $(BIN)/python
	$(BIN)/python -m venv --clear build/lowest-venv
	$(BIN)/python -m tools.release.lowest_versions > build/lowest-versions.txt
	$(LOWEST_BIN)/python -m pip install --quiet --constraint build/lowest-versions.txt --editable '.[dev]'
	$(LOWEST_BIN)/pytest -q $(PARALLEL) -m "not slow and not vendor"

sanitize: $(READY)
	$(BIN)/cmake -S runtime/kernels -B $(SANITIZED) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	  -DPython_EXECUTABLE=$(abspath $(BIN))/python -DTPUCONVERT_SANITIZE=ON
	$(BIN)/cmake --build $(SANITIZED)
	$(UNDER_SANITIZERS) $(BIN)/pytest -q tests/runtime/native tests/runtime/kernels -m "not slow and not vendor"
	$(UNDER_SANITIZERS) $(BIN)/pytest -q tests/runtime/native/test_hostile_*.py -m slow

EXTRA = import configparser; p = configparser.ConfigParser(); p.read('setup.cfg'); print(p['options.extras_require']['$(1)'])

# The tests run the first cases of each format; this runs other ones.
MUTATIONS ?= 5000

mutations: $(READY)
	$(BIN)/python -m tests.support.damage.mutation_campaign --seed $(SEED) --count $(MUTATIONS)

# Sessions are written to build/mutants; MODULES="fixed_point legality" selects some.
MODULES ?=

mutants: $(READY)
	$(BIN)/python -m pip install --quiet $$($(PYTHON) -c "$(call EXTRA,mutants)")
	$(BIN)/python -m tools.release.mutants $(MODULES)

# Inputs that fail are written to build/fuzz.
FUZZ := build/fuzz
FUZZ_SECONDS ?= 300
FUZZING = -max_total_time=$(FUZZ_SECONDS) -seed=$(SEED) -print_final_stats=1 -artifact_prefix=$(FUZZ)/

$(FUZZ)/.ready: $(READY) setup.cfg
	$(BIN)/python -m pip install --quiet $$($(PYTHON) -c "$(call EXTRA,fuzzing)")
	@mkdir -p $(FUZZ)/corpus $(FUZZ)/engine
	@touch $@

fuzz-readers: $(FUZZ)/.ready
	status=0; for target in $$($(BIN)/python -c "from tests.fuzzing.reader_targets import TARGETS; print(*TARGETS)"); do \
	  $(BIN)/python -m tests.fuzzing.reader_fuzzer $$target $(FUZZING)$$target- || status=1; done; exit $$status

# Families of kernels; those of tests/fuzzing/kernel_fuzzer.py by default.
FAMILIES ?= $$($(BIN)/python -c "from tests.fuzzing.kernel_fuzzer import TARGETS; print(*TARGETS)")

fuzz-kernels: $(FUZZ)/.ready
	@command -v clang++ >/dev/null || { echo "the fuzzers of the kernels need Clang with its libFuzzer and sanitizers:" \
	  "'apt-get install clang' on Debian and Ubuntu" >&2; exit 2; }
	tests/fuzzing/native/build.sh $(FUZZ)
	$(FUZZ)/program_fuzzer $(FUZZING)program- $(FUZZ)/corpus tests/fuzzing/corpus/program
	PATH="$(abspath $(BIN)):$$PATH" tests/fuzzing/native/build_engine.sh $(FUZZ)/engine
	status=0; for family in $(FAMILIES); do \
	  env TPUCONVERT_NATIVE_LIBRARY="$$(ls $(abspath $(FUZZ))/engine/_native*.so)" \
	    LD_PRELOAD="$$($(BIN)/python -c 'import atheris; print(atheris.path())')/asan_with_fuzzer.so" \
	    ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
	    $(BIN)/python -m tests.fuzzing.kernel_fuzzer $$family $(FUZZING)$$family- || status=1; done; exit $$status

# Five campaigns; with NNSmith's 500 graphs about an hour.
GENERATOR_SECONDS ?= 480
ENDLESS := --seed $(SEED) --count 10000000 --seconds $(GENERATOR_SECONDS)

generators: $(READY)
	status=0; for chip in bm1684 bm1686; do for mode in float int8; do \
	  $(BIN)/python -m tests.support.onnx.campaign --chip $$chip --mode $$mode $(ENDLESS) || status=1; done; done; \
	$(BIN)/python -m tests.support.tflite.chain_campaign $(ENDLESS) || status=1; exit $$status

# PyTorch has an environment for itself; setup.cfg has its version.
ZOO := build/zoo
ZOO_BIN := build/zoo-venv/bin

build/zoo-venv/.ready: setup.cfg
	$(PYTHON) -m venv build/zoo-venv
	$(ZOO_BIN)/python -m pip install --quiet $$($(PYTHON) -c "$(call EXTRA,zoo)")
	@touch $@

zoo: $(READY) build/zoo-venv/.ready
	$(BIN)/python -m pip install --quiet --editable '.[oracles]'
	$(ZOO_BIN)/python -m tools.zoo make $(ZOO)
	$(BIN)/python -m tools.zoo run $(ZOO) --markdown build/exporters.md

# So has NNSmith.
NNSMITH := build/nnsmith
NNSMITH_GRAPHS ?= 500

build/nnsmith-venv/.ready: setup.cfg
	$(PYTHON) -m venv build/nnsmith-venv
	build/nnsmith-venv/bin/python -m pip install --quiet $$($(PYTHON) -c "$(call EXTRA,nnsmith)")
	@touch $@

nnsmith: $(READY) build/nnsmith-venv/.ready
	rm -rf $(NNSMITH)
	build/nnsmith-venv/bin/python -W ignore -m tools.zoo.nnsmith_graphs make $(NNSMITH) --seed $(SEED) --count $(NNSMITH_GRAPHS)
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

# Each piece is a target of this file. Results and logs are written to build/nightly.
PIECES ?=

nightly: $(BIN)/python
	$(BIN)/python -m tools.nightly --seed $(SEED) $(PIECES)

# A release is built by pinned packages, in an environment for it. SOURCE_DATE_EPOCH fixes the times in the archives.
DIST_BIN := build/dist-venv/bin
BUILD = SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) PATH="$(abspath $(DIST_BIN)):$$PATH" \
  $(DIST_BIN)/python -m build --no-isolation --outdir dist

build/dist-venv/.ready: tools/release/publish_requirements.txt
	$(PYTHON) -m venv --clear build/dist-venv
	$(DIST_BIN)/python -m pip install --quiet --require-hashes -r $<
	@touch $@

sdist: build/dist-venv/.ready
	$(BUILD) --sdist

# The wheel is built from the source distribution.
dist: build/dist-venv/.ready
	rm -rf dist
	$(BUILD)

# Bill of materials and notes of the files in dist, in build/release, and checks of all of them.
release-check: build/dist-venv/.ready
	$(PYTHON) -m venv --clear --without-pip build/sbom-venv
	mkdir -p build/release
	$(DIST_BIN)/python -m tools.release.dry_run install dist build/sbom-venv
	$(DIST_BIN)/cyclonedx-py environment --output-reproducible --output-file build/release/tpuconvert.cdx.json build/sbom-venv
	$(DIST_BIN)/python -m tools.release.release --notes build/release/notes.md
	$(DIST_BIN)/python -m tools.release.dry_run check dist build/release

release-dry-run: dist
	$(MAKE) release-check

# Known vulnerabilities of the pinned packages; needs a network.
audit: $(BIN)/python
	$(BIN)/python -m pip install --quiet pip-audit
	$(BIN)/pip-audit --strict --disable-pip --require-hashes -r tools/release/publish_requirements.txt
	$(BIN)/pip-audit --strict --disable-pip --require-hashes -r tools/release/lint_requirements.txt

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

lint: lint-python lint-page lint-workflows

lint-page: $(BIOME)
	node_modules/.bin/biome check --error-on-warnings

# The linters of the workflows are pinned like what makes a release.
LINTERS_BIN := build/linters/bin

build/linters/.ready: tools/release/lint_requirements.txt | $(BIN)/python
	$(BIN)/python -m venv --clear --without-pip build/linters
	$(BIN)/python -m pip --python build/linters install --quiet --require-hashes -r $<
	@touch $@

lint-workflows: build/linters/.ready
	$(LINTERS_BIN)/actionlint
	$(LINTERS_BIN)/zizmor --offline --no-progress --quiet .

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
