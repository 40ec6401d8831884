# make demo is the place to start. Every target works from a bare Debian machine with git, Rust, Go, gcc, make and root.
SHELL := /bin/bash
.DEFAULT_GOAL := help
LAB := tests/lab
ARGS ?= get nodes

.PHONY: help demo test test-unit test-process test-neutron test-cluster roll bench lint golden packages controlplane image lab-up lab-down lab-kubectl

help: ## says what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: packages ## the drain of a node on a real cluster, start to end; KEEP=1 leaves the cluster running
	@$(LAB)/demo

test: ## all three levels, from a bare machine; ends with what the runners counted
	@tests/run unit process cluster

test-unit: ## decisions, parsers, rules, golden files: nothing outside this process
	@tests/run unit

test-process: ## real API server, real OVN databases, controller and agents as processes
	@tests/run process

test-cluster: ## three real nodes with a kernel datapath
	@tests/run cluster

roll: packages ## packets lost while things happen to the chassis, ours beside the guide's way and the plain one; EVENTS=, WAYS=, IMAGES=, N=3
	@tests/roll/run

test-neutron: ## a real Neutron as the second writer of the Northbound; not part of test
	@tests/run neutron

bench: packages controlplane ## the drain against the same by the OVN tools, in the same run
	cargo bench --locked --bench central
	KUBEBUILDER_ASSETS="$${KUBEBUILDER_ASSETS:-$$(. $(LAB)/settings && echo $$LAB_BIN)}" cargo test --locked --release --test process bench_ -- --ignored --nocapture

lint: ## formatting, clippy as errors, shell scripts, golden files, licences and duplicates of dependencies
	cargo fmt --check
	cargo clippy --locked --all-targets -- -D warnings
	shellcheck -x -P . $$(git grep -lE '^#!.*(bash|/sh)' -- hooks tests .ci) $(LAB)/settings
	cargo test --locked --quiet --test layers --test golden
	tests/dependencies

golden: ## rewrites every generated file: CRDs, roles, command help, metrics
	UPDATE_GOLDEN=1 cargo test --locked --quiet --test golden

packages: ## installs what this machine lacks
	@$(LAB)/install-packages

controlplane: ## etcd, kube-apiserver and their kind, built once per version
	@$(LAB)/build-controlplane

image: packages ## the container image, in the lab's image store
	@$(LAB)/build-image

lab-up: packages controlplane image ## a cluster of three nodes with the product installed
	@$(LAB)/build-node
	@$(LAB)/up
	@$(LAB)/product

lab-down: ## ends it
	@$(LAB)/down

lab-kubectl: ## make lab-kubectl ARGS='get ocn -A'
	@$(LAB)/kubectl $(ARGS)
