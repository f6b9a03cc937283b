# `make help` lists what there is. ARGS goes to the command behind a target: make test ARGS='-k paths'

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install install-peers install-ns3 ready demo test test-os-ken test-runs test-all test-kernel test-platforms deb test-deb image soak soak-cluster fuzz flood alerts mutants mutants-timing lint bench docs pictures clean

VENV := .venv/bin

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

install: ## install everything: Debian packages (as root), .venv, eBPF objects, the arbiter's library, the commands sopa and ryu-manager
	@scripts/install.sh

install-peers: ## install what SOPA is compared with (root): FRR, for sopa experiment's scheme bgp
	@scripts/install_peers.sh

install-ns3: ready ## install Debian's ns-3 (root), and build the simulator of sopa experiment: ARGS=--optimised builds ns-3, too, for speed
	@scripts/install_ns3.sh $(ARGS)

# What the other targets need. Unlike install, it leaves /usr/local/bin to another checkout that has it.
ready:
	@scripts/install.sh --quiet --keep-links

demo: ready ## a fat-tree, its controller and its agents, a failure, and what SOPA does about it (root)
	@$(VENV)/sopa demo $(ARGS)

test: ready ## all tests (root for those marked switch and lab)
	@scripts/test.sh $(ARGS)

test-os-ken: ready ## the switch and contract tests with os-ken in place of Ryu (root): ARGS=tests/unit/southbound
	@$(VENV)/python -m pip install --quiet --no-deps --upgrade --target build/os-ken --requirement requirements-os-ken.txt
	@SOPA_OPENFLOW=os_ken PYTHONPATH=$(CURDIR)/build/os-ken scripts/test.sh $(or $(ARGS),-n 4 tests/switch tests/contract)

test-runs: ready ## all tests again and again: idle, beside busy loops, and with standstills; a table of what failed (root): ARGS='--idle 2 --busy 0'
	@$(VENV)/python -m tests.campaigns.runs $(ARGS)

test-all: ready ## every campaign (tests, mutants, fuzz, floods, soaks, packages, kernels): what ran, how long, what it found (root): ARGS='mutants soak'
	@$(VENV)/python -m tests.campaigns $(ARGS)

test-kernel: ready ## the BPF tests and those of the kernel's datapath with Debian's own kernels, booted in QEMU (root): ARGS='--kernel 6.1 tests/bpf/test_attach.py'
	@scripts/test_kernel.sh $(ARGS)

test-platforms: ## README's commands, all tests and packages on Debian 13, from nothing in a root made by debootstrap (root): ARGS=tests/switch
	@scripts/test_platforms.sh $(ARGS)

deb: ## build Debian packages in dist/: sopa-controller, sopa-agent and sopa-tools
	@scripts/build_deb.sh $(ARGS)

test-deb: ready ## build and test them in roots made by debootstrap (root): installation, daemons, upgrade, purge: ARGS='--suite trixie'
	@scripts/test_deb.sh $(ARGS)

image: ready ## build them, and the container images sopa-controller and sopa-agent of them in podman's store (root): ARGS='--save DIRECTORY'
	@scripts/build_deb.sh
	@scripts/build_image.sh $(ARGS)

soak: ready ## break and heal the lab many times, everything checked after each (root): ARGS='--faults 1000 --seed 1'
	@$(VENV)/python -m tests.faults.soak $(ARGS)

soak-cluster: ready ## faults of three controllers, relays and etcd's nodes in the lab, everything checked after each (root): ARGS='--faults 500 --seed 1'
	@$(VENV)/python -m tests.faults.soak --cluster --faults 500 $(ARGS)

fuzz: ready ## garbled input for a controller, peers that lie (switch, ovsdb, etcd, agent, relay, arbiter, prober), packets for the eBPF programs, demands for the arbiter's library (root): ARGS='switch --seconds 600'
	@$(VENV)/python -m tests.fuzz $(ARGS)

flood: ready ## what clients without a token can send, as much as goes, while another client measures (root): ARGS='openflow --seconds 60'
	@$(VENV)/python -m tests.floods $(ARGS)

alerts: ready ## a lab scraped by Prometheus: no alert while all is well, and of each fault the one that names it (root): ARGS='one --only link'
	@$(VENV)/python -m tests.alerts $(ARGS)

mutants: ready ## change the product in small ways that are wrong, and say which no test finds (root): ARGS='--only keepalive schedule'
	@$(VENV)/python -m tests.mutants $(ARGS)

mutants-timing: ready ## run each test of time 30 times with a product that is too slow for it, and say how often it failed (root): ARGS='--runs 3 BFD'
	@$(VENV)/python -m tests.campaigns.slow $(ARGS)

lint: ready ## formatting, lint and types of the Python; lint of the shell scripts; whether the lock file is up to date
	@$(VENV)/ruff check .
	@$(VENV)/ruff format --check .
	@$(VENV)/mypy
	@$(VENV)/shellcheck scripts/*.sh .ci/run deploy/debian/*.post* deploy/debian/*.prerm
	@$(VENV)/python scripts/lock.py --check

bench: ready ## measure the parts that have to be fast
	@$(VENV)/python -m experiments.bench $(ARGS)

docs: ready ## build the site of the documents in build/site, from docs/ and the code's own tables
	@test -x build/docs-venv/bin/mkdocs || { python3 -m venv build/docs-venv && build/docs-venv/bin/pip -q install -r requirements-docs.txt; }
	@PYTHONPATH=. $(VENV)/python scripts/reference.py
	@build/docs-venv/bin/mkdocs build --quiet --strict

pictures: ready ## take the pictures of the page in docs/ anew, of labs with controller, agents and traffic (root): ARGS='failed lossy'
	@$(VENV)/python -m tests.web.pictures $(ARGS)

clean: ## remove .venv and everything that is built
	@rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find sopa_ryu/agent experiments -name '*.o' -delete
	@rm -f sopa_ryu/arbiter/allocator/*.so
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
