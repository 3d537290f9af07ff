# SPDX-License-Identifier: MIT
# The front door; CMake does the work behind it.
#
#   make run    install what is missing, build, run the demo     make bench   measure speed
#   make test   install what is missing, build, run the tests    make lint    floors, clang-tidy, format
#   make asan   the tests under address and undefined sanitizers make fuzz    each fuzz target for FUZZ_SECONDS
#   make tsan   the tests under the thread sanitizer             make docs    run every command of the documents
#   make test-isa   with each instruction set                    make test-amx   with AMX emulated, where it is not there
#   make test-parity   against PyTorch (installs it in build/venv)
#   make install PREFIX=/usr/local (make uninstall)              make package  .deb and .tar.gz in build/packages
#   make api    the reference of the C interface, in build/api   make wheel    the Python package, in build/packages
#   make wheels  Python packages for every Linux, x86-64 and aarch64
#   make test-arm   the tests on arm64, by qemu (root and debootstrap); make packages: .deb and wheels on bare Debian systems
#   make figures   runs the benches and rewrites the tables of docs/performance.md; PAIRS=FILE: translation, too
#   make clean
BUILD ?= build
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60

all: $(BUILD)/CMakeCache.txt
	cmake --build $(BUILD) -j $(JOBS)

# The stamp follows the script, so that a new dependency is installed by the next make.
build/.deps: scripts/install-deps
	@sh scripts/install-deps
	@mkdir -p build && touch $@

$(BUILD)/CMakeCache.txt: build/.deps
	cmake -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=Release

# The command alone is built: its tests, benches and fuzz targets are for make test.
run: $(BUILD)/CMakeCache.txt
	cmake --build $(BUILD) -j $(JOBS) --target attn
	$(BUILD)/attn demo

test: all
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

# The instruction sets of this machine as the command in $(1) has them, the best first.
SETS = env -u ATTN_ISA $(1) version | sed -n 's/.*machine has: \(.*\))/\1/p' | tr -d ,
# The tests without the label no-isa with each further instruction set of this machine: `test` takes the best.  A quarter of
# the hostile numbers and a third of the tables; without vectors a quarter of them, which take several times as long there.
test-isa: all
	@for isa in $$($(call SETS,$(BUILD)/attn) | cut -s -d' ' -f2-); do echo "ATTN_ISA=$$isa"; \
	    ATTN_ISA=$$isa ATTN_HOSTILE_PERCENT=25 ATTN_TEST_STEP=$$([ $$isa = scalar ] && echo 4 || echo 3) \
	    ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS) -LE '^no-isa$$' || exit 1; done

# The same with AMX's tiles in memory (tests/support/amx_emulated.h), where there is all that AMX's kernels need but AMX.
test-amx: all
	@case "$$($(call SETS,$(BUILD)/attn) | cut -d' ' -f1)" in \
	amx) echo "skipped: this machine has AMX" ;; \
	avx512bf16) cmake --build $(BUILD) -j $(JOBS) --target emulated || exit 1; \
	    if [ "$$($(call SETS,$(BUILD)/tests/emulated_attn) | cut -d' ' -f1)" = amx ]; then \
	    ctest --test-dir $(BUILD) -C emulated -R '^emulated_' --output-on-failure -j $(JOBS); \
	    else echo "skipped: this machine lacks AVX-512 VBMI or VNNI"; fi ;; \
	avx512 | avx2 | neon | scalar) echo "skipped: this machine lacks AVX-512 with bf16" ;; \
	*) echo "attn version names no instruction set"; exit 1 ;; \
	esac

# A test's labels (its first comment) say where it does not run, such as programs of their own processes, scripts that build or
# install, and minutes of loops on one thread.
asan: build/.deps
	cmake --preset asan
	cmake --build build-asan -j $(JOBS)
	ctest --test-dir build-asan --output-on-failure -j $(JOBS)

tsan: build/.deps
	cmake --preset tsan
	cmake --build build-tsan -j $(JOBS)
	ctest --test-dir build-tsan --output-on-failure -j $(JOBS)

test-parity: all
	sh scripts/install-parity
	build/venv/bin/python tests/parity/run.py
	build/venv/bin/python tests/parity/layers.py
	build/venv/bin/python tests/parity/package.py
	build/venv/bin/python tests/parity/finetune.py build/attn
	build/venv/bin/python tests/parity/finetune_msa.py build/attn
	build/venv/bin/python tests/parity/detect.py build/attn
	build/venv/bin/python tests/parity/detr.py build/attn build/tests/parity_tool build/detr
	build/venv/bin/python tests/parity/lora.py build/attn
	build/venv/bin/python tests/parity/family.py build/attn
	build/venv/bin/python tests/parity/transformers_models.py
	build/venv/bin/python tests/parity/tokenizers_parity.py --characters
	PYTHONPATH=python ATTN_LIBRARY=$(CURDIR)/build/libattn.so build/venv/bin/python tests/parity/encoders.py
	PYTHONPATH=python ATTN_LIBRARY=$(CURDIR)/build/libattn.so \
	    build/venv/bin/python -m unittest discover -s python/tests -p 'test_torch*.py'
	PYTHONPATH=python ATTN_LIBRARY=$(CURDIR)/build/libattn.so \
	    build/venv/bin/python -m unittest discover -s python/tests -p 'test_refusals.py'

bench: all
	$(BUILD)/attn bench attend
	$(BUILD)/attn bench train
	$(BUILD)/attn bench products
	$(BUILD)/attn bench --sets

# The peers' libraries are installed in $(BUILD)/venv.  A bench that fails leaves its tables as they are.  FIGURES_OPTIONS: of
# scripts/figures measure, such as --only attention.
FIGURES ?= $(BUILD)/figures
figures: all
	ATTN_BUILD=$(BUILD) sh scripts/install-parity --peers
	export ATTN_BUILD=$(CURDIR)/$(BUILD); status=0; \
	    python3 scripts/figures measure $(FIGURES) $(if $(PAIRS),--pairs $(PAIRS)) $(FIGURES_OPTIONS) || status=1; \
	    python3 scripts/figures write $(FIGURES) && exit $$status

lint: all
	sh scripts/lint

fuzz: build/.deps
	sh scripts/fuzz $(FUZZ_SECONDS)

docs: all
	ATTN_BUILD=$(CURDIR)/$(BUILD) sh tests/docs.sh
	ATTN_BUILD=$(CURDIR)/$(BUILD) python3 tests/documents/run.py

install: all
	cmake --install $(BUILD) --prefix $(PREFIX)

# What the last `make install` put in its place.
uninstall:
	cmake --build $(BUILD) --target uninstall

# Every way to build a program on attn, which compiles the library several times; `pip` fetches from the network.
check-install: build/.deps
	sh scripts/check-install

package: all
	cd $(BUILD) && cpack

wheel: all
	sh scripts/wheel $(BUILD)

# For every Linux since 2014, x86-64 and aarch64; downloads zig and the sources of the libraries that are linked in.
wheels: all
	sh scripts/wheels
	sh scripts/check-wheels

# On bare Debian systems, which scripts/chroot makes: as root.
test-arm:
	sh scripts/test-arm

packages:
	sh packaging/build

api:
	BUILD=$(BUILD) sh scripts/api

clean:
	rm -rf build build-asan build-tsan build-debug out

.PHONY: all run test test-isa test-amx asan tsan test-parity bench figures lint fuzz docs install uninstall check-install package wheel wheels test-arm packages api clean
