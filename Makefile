# make run     set up .venv, build the extension, train the text model
# make test    set up .venv, run the quick tests      (ARGS="-k sigmoid" passes options on)
# make test-all  all tests, with what the slow ones need
# make test-cuda the quick tests of the engine, with the build of torch that has CUDA, which needs no GPU
# make matrix  a subset of them, at length, with each supported torch, Python and compiler, in .matrix
# make lint    formatting, types, spelling, links, as CI does   (make format fixes what it can)
# make docs    the API reference, into docs/_build/html
# make doctor, check, watch, build-debug   the commands of the same names; make benchmark   all measurements
PYTHON ?= python3
# Installed first, and pinned: it is the version that the tests are written for, and where the index
# has a build without CUDA for it, a machine without a GPU gets that one.
TORCH ?= torch==2.13.0
VENV ?= .venv
ARGS ?=
TESTS ?=
# Test files at a time. More would only wait for each other's compilers.
WORKERS ?= 2
# The versions of torch that `make matrix` tries, and on what: real builds, operators, reload, compile.
# Then those of Python that are here, and clang++.
VERSIONS ?= torch==2.9.1 torch==2.10.0 torch==2.11.0 torch==2.12.0 torch==2.13.0 torch
PYTHONS ?= python3.10 python3.11 python3.12 python3.13
SUBSET ?= tests/jit/api/test_real.py tests/jit/machine/test_toolchain.py tests/jit/api/test_ways_of_load.py \
  tests/ops/basic tests/ops/loading/test_reload.py tests/ops/rnn/lltm/test_lltm.py \
  tests/ops/rnn/lltm/test_lltm_compile.py tests/ops/rnn/sizes/test_padded_layers.py \
  tests/ops/stylegan/bias_act/test_fused_bias_act.py

# Threads that wait spin for some microseconds, and then sleep. The OpenMP runtime's default, to spin on,
# is no faster here, and many times slower on a machine that has anything else to do.
GOMP_SPINCOUNT ?= 10000
export GOMP_SPINCOUNT

# torch has thousands of modules. What is imported is compiled then, in a tenth of the time.
PIP = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile
unexport PYTHONDONTWRITEBYTECODE
# In the order of their names, the files that take longest come first, so that workers end together.
PYTEST = $(VENV)/bin/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Tells what was edited and is compiled, which tests would do in silence.
FAMILIES ?= all
BUILD = $(VENV)/bin/python -m lltm_jit build $(FAMILIES)
QUICK = -m "not slow and not large" --hypothesis-profile quick
# Of the tests, most are wrong on purpose.
CXX_FILES = $(shell git ls-files kernels examples benchmarks lltm_jit tests/jit/constructs.cpp | grep -E '[.](cpp|h|cu|cuh)$$')

.PHONY: run test test-all test-cuda setup-cuda matrix lint format docs doctor check benchmark watch build-debug clean

run: $(VENV)/.installed
	$(VENV)/bin/python examples/train_text.py $(ARGS)

# What tests build and keep is here, and not in the user's home.
test test-all $(VENV)/.test: export TORCH_EXTENSIONS_DIR ?= $(abspath $(VENV))/builds
test test-all: export MPLCONFIGDIR ?= $(abspath $(VENV))/matplotlib
test test-all: export IPYTHONDIR ?= $(abspath $(VENV))/ipython
# Where there is no GPU, no kernel of CUDA's runs. One architecture shows that they compile, in two thirds
# of the time.
ifeq ($(wildcard /dev/nvidia* /dev/dxg),)
test test-all $(VENV)/.test: export TORCH_CUDA_ARCH_LIST ?= 9.0
endif
# Each worker has a thread, for more would wait for each other. Tests of threads set their number.
test: export OMP_NUM_THREADS ?= 1
test: $(VENV)/.test
	@$(BUILD) >/dev/null
	$(PYTEST) $(QUICK) $(TESTS) $(ARGS)

test-all: $(VENV)/.test-all
	@$(BUILD) >/dev/null
	$(PYTEST) $(ARGS)

# Three equal signs take the version as it is spelt, and no build of it without CUDA that pip may find.
CUDA = $(MAKE) --no-print-directory VENV=.matrix/cuda TORCH='$(subst ==,===,$(TORCH))' FAMILIES='basic rnn'
test-cuda: setup-cuda
	.matrix/cuda/bin/python -c 'import torch; assert torch.version.cuda, "a build without CUDA"'
	$(CUDA) test TESTS='tests/jit tests/ops/loading'

setup-cuda:
	$(CUDA) .matrix/cuda/.test

# What runs in each environment, with 200 examples of hypothesis; at last random layers.
EACH = $(MAKE) --no-print-directory test QUICK='--hypothesis-profile long' ARGS="-q $(SUBSET)"
matrix: $(VENV)/.test
	@set -e; for version in $(VERSIONS); do \
	  echo "$$version"; $(EACH) VENV=.matrix/$${version##*=} TORCH=$$version; \
	done
	@set -e; for python in $(PYTHONS); do \
	  $$python -c "" 2>/dev/null || { echo "without $$python, which is not here"; continue; }; \
	  echo "$$python"; $(EACH) VENV=.matrix/$$python PYTHON=$$python; \
	done
	@for tool in clang++ ccache; do \
	  command -v $$tool >/dev/null || echo "without $$tool: Debian's packages clang, libomp-dev, libclang-rt-dev and ccache bring all"; \
	done
	@! command -v clang++ >/dev/null || { echo clang++; CXX=clang++ $(EACH) VENV=.matrix/clang++; }
	$(VENV)/bin/python tools/fuzz_sequence.py --minutes 10

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/clang-format --dry-run -Werror $(CXX_FILES)
	git ls-files | xargs $(VENV)/bin/codespell
	$(VENV)/bin/md-dead-link-check

format: $(VENV)/.dev
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format
	$(VENV)/bin/clang-format -i $(CXX_FILES)

docs: $(VENV)/.docs
	$(VENV)/bin/python -m sphinx -W --keep-going -q docs docs/_build/html

# The commands of every day; ARGS adds to them, such as ARGS=-c for the GPU.
doctor: $(VENV)/.installed
	$(VENV)/bin/python -m lltm_jit doctor $(ARGS)

check: $(VENV)/.installed
	$(VENV)/bin/python -m lltm_jit check forward backward $(ARGS)

benchmark: $(VENV)/.installed
	$(VENV)/bin/python -m benchmarks $(ARGS)

watch: $(VENV)/.test
	$(VENV)/bin/python -m lltm_jit watch -- $(VENV)/bin/python -m lltm_jit check forward backward $(ARGS)

build-debug: $(VENV)/.installed
	$(VENV)/bin/python -m lltm_jit build --debug $(ARGS)

clean:
	rm -rf $(VENV) .matrix build dist *.egg-info docs/_build

# Each stamp stands for one set of installed packages; it is older than the files that decide the set
# only when they changed, so that a second call installs nothing.
$(VENV)/.installed: pyproject.toml setup.py
	$(PYTHON) -m venv $(VENV)
	$(PIP) '$(TORCH)' numpy --editable .  # torch warns at every import when there is no numpy
	@touch $@

# The kernels compile beside the installation of what only tests need. In the background, pip does not
# see Ctrl-C.
$(VENV)/.test: $(VENV)/.installed
	trap 'kill $$!' INT; $(PIP) --editable '.[test]' & $(BUILD); \
	  built=$$?; wait $$! && exit $$built
	@touch $@

$(VENV)/.test-all: $(VENV)/.test
	$(PIP) --editable '.[test-all]'
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(PIP) --editable '.[docs]'
	@touch $@
