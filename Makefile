# The commands of Sanwire. `make run` and `make test` need a Debian 12 with Rust, and nothing else.

# Rust installed by rustup may not be on the path of a fresh shell.
export PATH := $(PATH):$(HOME)/.cargo/bin
SANWIRE = $(or $(CARGO_TARGET_DIR),target)/release/sanwire
DOCS = $(or $(CARGO_TARGET_DIR),target)/docs

.PHONY: help run build setup setup-build setup-bench setup-package check test test-long deny bench demo docs package image

help:
	@echo 'make run        build, and serve a volume of 1 GiB on this host, without root'
	@echo 'make check      format, lints, rules and unit tests: what to run before each commit'
	@echo 'make test       run every check and test'
	@echo 'make test-long  the same, with more simulation, tests that the clock judges, Miri, and a minute of each fuzz target'
	@echo 'make demo       two hosts on this one: discover, attach, make a file system, compare (root)'
	@echo 'make bench      measure against the raw link and against other servers (root); `make bench flood` one part'
	@echo 'make deny       licences, sources and security advisories of all that we depend on (cargo-deny, network)'
	@echo 'make docs       manual pages and shell completions'
	@echo 'make package    the Debian package'
	@echo 'make image      a container image (OCI), without a daemon'
	@echo 'make setup      install the Debian packages that the above need'

setup:
	@packaging/setup.sh test

setup-build:
	@packaging/setup.sh build

setup-bench:
	@packaging/setup.sh bench

build: setup-build
	cargo build --release --package sanwire

run: build
	@$(SANWIRE) serve

check: setup-build
	@cargo xtask check

# All other packages that it needs are installed while it compiles.
test: setup-build
	@cargo xtask test --packages

test-long: setup
	@cargo xtask test --long

deny:
	@cargo deny --version > /dev/null 2>&1 || { echo 'deny: install it with: cargo install --locked cargo-deny' >&2; exit 1; }
	cargo deny check
	cargo deny --manifest-path fuzz/Cargo.toml --config deny.toml check

# `make bench flood` measures one part.
BENCH_PARTS = hyperscsi iscsi iser security links flood frozen scale management snapshots paper visa raw
.PHONY: $(BENCH_PARTS)
bench: setup-bench build
	@bench/run.sh $(filter $(BENCH_PARTS),$(MAKECMDGOALS))
$(BENCH_PARTS): bench

demo: setup build
	@tests/demo.sh $(SANWIRE)

docs: build
	$(SANWIRE) man $(DOCS)/man
	mkdir -p $(DOCS)/completions
	for shell in bash zsh fish; do $(SANWIRE) completions $$shell > $(DOCS)/completions/sanwire.$$shell; done
	@echo 'written below $(DOCS)'

package: setup-package
	@packaging/package.sh

image: setup-package
	@packaging/image.sh

setup-package:
	@packaging/setup.sh package
