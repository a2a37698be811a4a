# `make` lists the tasks. Each task is one script or one cargo call, so that a person can also run it by hand.
.DEFAULT_GOAL := help
.PHONY: help run release test test-full check generate fmt bench studies fuzz differences packages deb image

help: ## list the tasks
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## a first look, built in some minutes: HTTPS on 127.0.0.1:8443, stats on 127.0.0.1:8404
	@scripts/packages.sh build
	cargo run --profile quick --bin penstock -- quickstart

release: ## build the penstock to install, compiled by what it was seen to do: target/install/penstock
	@scripts/release.sh

deb: ## the Debian packages penstock and penstock-haproxy, with the binary of make release: target/debian
	@scripts/deb.sh

image: ## an OCI image with the conventions of the official haproxy image: target/image
	@scripts/image.sh

test: ## build and pass every test, the scenarios beside the real HAProxy among them
	@scripts/test.sh

test-full: ## the same, then endurance, scanners, long fuzzing and benchmarks
	@scripts/test-full.sh

check: ## what a commit must pass: format, lints, tests
	@scripts/check.sh

generate: ## write anew what is made from tables and data: docs/keywords.md, docs/rules.md, docs/runtime-api.md, man pages, completion, the expected messages, pages of figures
	UPDATE=1 cargo test --workspace --test manual --test messages --test pages
	scripts/pages.py

fmt: ## format every file
	cargo fmt --all

differences: ## look for differences between haproxy and penstock for PENSTOCK_SECONDS (60), from PENSTOCK_SEED
	@PENSTOCK_SECONDS=$${PENSTOCK_SECONDS:-60} cargo test --workspace --test differences

bench: ## penstock beside Debian's haproxy, interleaved, server CPU time; writes docs/measurements
	@scripts/bench.sh

studies: ## every study at its full length (four hours), beside haproxy and nginx; writes docs/measurements
	@scripts/release.sh
	@PENSTOCK_BIN=target/install/penstock scripts/studies.py

fuzz: ## fuzz every target for FUZZ_SECONDS (60 each unless told)
	@FUZZ_SECONDS=$${FUZZ_SECONDS:-60} scripts/fuzz.sh

packages: ## install the Debian packages that the tasks above need
	@scripts/packages.sh build test check full package image
