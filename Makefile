# Bare `make` says what there is. Nothing here needs clang but generate and lint.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# sudo forgets where Go is installed. Go's own stamping would need git to trust
# the checkout of whoever called sudo; the version comes from -X instead. What is
# shipped, tested and read by linters is compiled in the same way, so once.
export PATH := $(PATH):/usr/local/go/bin
export GOFLAGS := $(strip $(filter-out -buildvcs=% -trimpath,$(GOFLAGS)) -buildvcs=false -trimpath)
export CGO_ENABLED := 0

GO  := go
GO_BUILD = $(GO) build -ldflags '-s -w -X main.version=$(VERSION)'
GIT := git -c safe.directory='*'

VERSION ?= $(shell $(GIT) describe --tags --always --dirty 2>/dev/null || echo unknown)

# C is compiled by bpf2go, see pkg/datapath/gen.go. The multiarch folder holds
# asm/types.h, which clang does not look for when the target is bpf.
CLANG_MAJOR := 19
CLANG_MINOR := 1
export BPF2GO_CC     := clang-$(CLANG_MAJOR)
export BPF2GO_STRIP  := llvm-strip-$(CLANG_MAJOR)
# Line numbers count within a section, so that what relocates them is a third of the object for nothing.
UNNEEDED := llvm-objcopy-$(CLANG_MAJOR) --remove-section=.rel.BTF.ext
# A verifier's log names lines; with columns the object were a fifth larger.
export BPF2GO_CFLAGS := -O2 -g -gno-column-info -Wall -Werror -mcpu=v3 -idirafter /usr/include/$(shell uname -m)-linux-gnu

# Linters are a module of their own: the product does not depend on them.
TOOL         := $(GO) tool -modfile=$(CURDIR)/tests/tools/go.mod
# Tests whose dependencies the product does not need are modules of their own, too.
TEST_MODULES := tests/deploy tests/e2e tests/programs/kafka
CLANG_FORMAT := clang-format-$(CLANG_MAJOR)
C_FILES      := $(wildcard bpf/*.c bpf/*/*.c bpf/*/*.h tests/packets/testdata/*.c)
GENERATED    := pkg/datapath 'tests/bench/*_bpfel.*'

# Debian packages. Tests run the committed objects; one compiles another layout
# of the maps, which it is upgraded from, and one sets up packet filters.
TEST_PACKAGES  := ca-certificates iptables nftables clang-$(CLANG_MAJOR) libbpf-dev linux-libc-dev libc6-dev
CONFORMANCE_PACKAGES := runc busybox-static netcat-openbsd bind9-dnsutils curl wget iproute2 conntrack iptables nftables gcc libc6-dev
PROGRAM_PACKAGES := rabbitmq-server amqp-tools openssh-server openssh-client kcat haproxy systemd iproute2 nftables \
	conntrack netcat-openbsd nginx-light nodejs python3 rsyslog socat
BUILD_PACKAGES := $(TEST_PACKAGES) llvm-$(CLANG_MAJOR) $(CLANG_FORMAT) make git

# With -v and -p 1 the results come one by one, as they happen; what is left out
# is only the noise of passing subtests.
QUIETER := grep --line-buffered --text -vE '^(=== |PASS$$|[[:space:]]+--- PASS)'

# The image, the program in it, and what it is built with: the first of these that there is.
PROGRAM     ?= headgate
IMAGE       ?= $(PROGRAM):$(VERSION)
IMAGE_ARCH  ?= $(shell $(GO) env GOARCH)
IMAGE_TOOL  ?= $(notdir $(firstword $(shell command -v docker podman buildah)))

# What make conformance runs: headgate, headgate-dsr (with --forwarding dsr), nftables, iptables, or
# headgate-image with IMAGE_ARCHIVE; and which groups of tests.
PROXY       ?= headgate
TEST_GROUPS ?= services,network,loadbalancer,dual
CONFORMANCE  = $(GO) run ./tests/conformance

define need-root
	@[[ $$(id -u) == 0 ]] || { echo "make $@ needs root for BPF and network namespaces: sudo make $@$(1)" >&2; exit 1; }
endef

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/headgate, and the traffic generator bin/headgate-bench
	@echo "build bin/headgate and bin/headgate-bench $(VERSION)"
	@$(GO_BUILD) -o bin/ ./cmd/...
	@[[ -z $${SUDO_UID:-} ]] || chown -R "$$SUDO_UID:$$SUDO_GID" bin

.PHONY: demo
demo: ## Balance real traffic on this machine, in namespaces, and show it (root)
	$(call need-root)
	@$(MAKE) --no-print-directory build
	@bin/headgate-bench demo

.PHONY: test
test: ## Install what tests need and run all of them (root)
	$(call need-root, (or without root: make test-unit))
	@tests/tools/install $(TEST_PACKAGES)
	@echo "build the packages"
	@$(GO) build ./...
	@echo "run the tests"
	@PROMETHEUS=$$(tests/tools/prometheus) HEADGATE_REQUIRE_PRIVILEGED=1 HEADGATE_PACKETS=1000000 $(GO) test -v -p 1 -count=1 -timeout 30m ./... | $(QUIETER)
	@$(MAKE) --no-print-directory test-deploy

.PHONY: test-deploy
test-deploy: ## Render deploy/ as helm and kubectl do, and read it strictly
	@echo "test deploy/ (the first run builds helm and kustomize)"
	@cd tests/deploy && $(GO) test -v -count=1 ./... | $(QUIETER)

.PHONY: monitoring-test
monitoring-test: ## Have Debian's Prometheus watch real agents, and cause what each alert is for (root)
	$(call need-root)
	@echo "build headgate as the tests do, which may take as long as they have on a busy machine"
	@CGO_ENABLED=0 $(GO) build -buildvcs=false -trimpath -o /dev/null ./cmd/headgate
	@PROMETHEUS=$$(tests/tools/prometheus) HEADGATE_MONITORING=1 HEADGATE_REQUIRE_PRIVILEGED=1 \
		$(GO) test -v -count=1 -timeout 20m ./tests/monitoring | $(QUIETER)

.PHONY: test-e2e
test-e2e: ## Run the tests with a real control plane, which is built first, once (root)
	$(call need-root)
	@$(MAKE) --no-print-directory control-plane
	@echo "test with etcd, kube-apiserver and controllers"
	@cd tests/e2e && HEADGATE_REQUIRE_PRIVILEGED=1 $(GO) test -v -count=1 -timeout 20m . | $(QUIETER)

.PHONY: test-unit
test-unit: ## Run the tests that need no root
	@$(GO) test ./...

.PHONY: test-race
test-race: ## Run the same under the race detector (needs a C compiler)
	@CC=$(BPF2GO_CC) CGO_ENABLED=1 $(GO) test -race ./pkg/...

# How long each fuzz target is fed, and how many are fed at once. One process feeds a
# target: the machine of the packet tests is one.
FUZZ_TIME    ?= 1m
FUZZ_AT_ONCE ?= 2

.PHONY: fuzz
fuzz: ## Feed each fuzz target for FUZZ_TIME; a finding fails, and stays in testdata/fuzz (root)
	$(call need-root)
	@grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sed -E 's|/[^/]*:func | |' | sort | \
		FUZZ_TIME=$(FUZZ_TIME) xargs -P $(FUZZ_AT_ONCE) -n 2 tests/tools/fuzz

.PHONY: test-kernels
test-kernels: ## Run the tests of the datapath on Debian's older kernels, in qemu (root)
	$(call need-root)
	@tests/kernels/run

# The benchmark builds the agent and a test within a network namespace, where no module can be had.
BENCH = $(GO) list -deps -test ./cmd/headgate ./tests/packets >/dev/null && $(GO) run ./tests/bench

.PHONY: bench
bench: ## Measure, beside no program and an empty program (root)
	$(call need-root)
	@$(BENCH) $(BENCH_ARGS)

.PHONY: control-plane
control-plane: ## Build the control plane that test-e2e runs, once; it takes minutes
	@$(GO) run ./tests/controlplane/built etcd kube-apiserver kube-controller-manager

.PHONY: kube-proxy
kube-proxy: ## Build the kube-proxy that report measures beside, once; it takes minutes
	@$(GO) run ./tests/controlplane/built kube-proxy

# Where the pages of a report go: those in docs are not for a quick look.
REPORT_TO = $(if $(QUICK),bin,docs)

.PHONY: report
report: ## Measure everything, and contenders, and write the pages in docs; QUICK=1 tries it and writes to bin (root)
	$(call need-root)
	@$(MAKE) --no-print-directory build
	@$(BENCH) $(if $(QUICK),-quick) -markdown $(REPORT_TO)/performance.md
	@bin/headgate-bench scenario $(if $(QUICK),--quick) --kube-proxy "$$($(GO) run ./tests/controlplane/built -cached kube-proxy)" $(REPORT_ARGS) \
		--markdown $(REPORT_TO)/contenders.md --plots bin/contenders --html bin/report.html --output bin/report.json tests/bench/scenarios/*.yaml

.PHONY: deps
deps: ## Install what generate and lint need (Debian 12, root)
	$(call need-root)
	@tests/tools/install $(BUILD_PACKAGES)

.PHONY: check-clang
check-clang:
	@version=$$($(BPF2GO_CC) --version 2>/dev/null | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1 || true); \
	[[ $$version == $(CLANG_MAJOR).$(CLANG_MINOR).* ]] || { \
		echo "$(BPF2GO_CC): found version $${version:-none}, need $(CLANG_MAJOR).$(CLANG_MINOR), another one writes other objects: sudo make deps" >&2; exit 1; }

.PHONY: generate
generate: check-clang ## Compile bpf/ and write the Go code that loads it
	@echo "generate pkg/datapath"
	@$(GO) generate ./pkg/datapath
	@echo "generate tests/bench"
	@$(GO) generate ./tests/bench
	@for object in pkg/datapath/*_bpfel.o tests/bench/*_bpfel.o; do $(UNNEEDED) $$object; done
	@gzip -9 --no-name --keep --force pkg/datapath/*_bpfel.o # what the program has in it

.PHONY: generate-check
generate-check: generate ## Fail if what is committed is not what generate writes
	@stale=$$($(GIT) status --porcelain -- $(GENERATED)); \
	[[ -z $$stale ]] || { $(GIT) --no-pager diff --stat -- $(GENERATED); \
		echo "generated code is not what is committed, run make generate and commit:" >&2; echo "$$stale" >&2; exit 1; }

.PHONY: fences
fences: ## Check who imports what, and how long files are
	@$(GO) test -count=1 ./tests/fences

.PHONY: lint
lint: fences ## Run every linter
	@echo "gofmt"; unformatted=$$(gofmt -l .); [[ -z $$unformatted ]] || { echo "not formatted, run make fmt: $$unformatted" >&2; exit 1; }
	@echo "go mod tidy"; $(GO) mod tidy -diff; for m in $(TEST_MODULES); do (cd $$m && $(GO) mod tidy -diff); done
	@echo "golangci-lint, vet and staticcheck in it (the first run builds it)"; for m in . $(TEST_MODULES); do (cd $$m && $(TOOL) golangci-lint run); done
	@echo "clang-format"; $(if $(C_FILES),$(CLANG_FORMAT) --dry-run -Werror $(C_FILES),true)

.PHONY: fmt
fmt: ## Format Go and C
	@$(TOOL) golangci-lint fmt
	@$(if $(C_FILES),$(CLANG_FORMAT) -i $(C_FILES),true)

.PHONY: cross
cross: ## Check that the other architecture builds
	@for arch in amd64 arm64; do echo "build for $$arch"; \
		GOARCH=$$arch $(GO) build -o /dev/null ./cmd/...; done

.PHONY: man
man: ## Write man pages of every command to bin/man
	@SOURCE_DATE_EPOCH=$$($(GIT) log -1 --format=%ct 2>/dev/null || date +%s) $(GO) run ./tests/clidocs/man bin/man
	@echo "wrote bin/man: man -l bin/man/headgate.8"

.PHONY: image
image: ## Build the container image, or PROGRAM=headgate-bench, with docker, podman or buildah
	@[[ -n "$(IMAGE_TOOL)" ]] || { echo "make image needs docker, podman or buildah" >&2; exit 1; }
	@echo "build bin/linux/$(IMAGE_ARCH)/$(PROGRAM) $(VERSION)"
	@GOOS=linux GOARCH=$(IMAGE_ARCH) $(GO_BUILD) -o bin/linux/$(IMAGE_ARCH)/$(PROGRAM) ./cmd/$(PROGRAM)
	$(IMAGE_TOOL) build --platform linux/$(IMAGE_ARCH) --build-arg TARGETARCH=$(IMAGE_ARCH) --target $(PROGRAM) -f Dockerfile -t $(IMAGE) .

.PHONY: conformance
conformance: ## Have Kubernetes' own tests judge Headgate, or PROXY=nftables (root; hours)
	$(call need-root)
	@tests/tools/install $(CONFORMANCE_PACKAGES)
	@$(CONFORMANCE) run -proxy $(PROXY) -groups $(TEST_GROUPS) -image '$(IMAGE_ARCHIVE)'
	@$(CONFORMANCE) report

# How long each step of the drill lasts at least, and which mode of kube-proxy: both, one after the other.
MIGRATE_ARGS ?= -pace 3s

.PHONY: migrate-test
migrate-test: ## Go from kube-proxy to Headgate and back on three nodes, under load (root)
	$(call need-root)
	@tests/tools/install iproute2 iptables nftables
	@$(MAKE) --no-print-directory control-plane kube-proxy
	@$(GO) run ./tests/migrate $(MIGRATE_ARGS)

# Earlier versions: the two before, the last one without carrying, and the last one whose flows stood in a map of the kernel. None of them
# keeps flows of this one, which follows each of them alone.
BEFORE ?= e79c009-only-from 11e8f86-carries-otherwise-only-from 793e169-only-from 7a8b83d-only-from

.PHONY: versions-test
versions-test: ## Replace this version by earlier ones and back, with every option (root)
	$(call need-root)
	@rm -rf bin/versions && mkdir -p bin/versions; for version in $(BEFORE); do echo "build $$version"; \
		mkdir bin/versions/$$version && $(GIT) archive $${version%%-*} | tar -x -C bin/versions/$$version && \
		(cd bin/versions/$$version && $(GO) build -o ../headgate-$$version ./cmd/headgate) && \
		rm -r bin/versions/$$version || exit 1; done
	@HEADGATE_VERSIONS=$$(ls -d $(CURDIR)/bin/versions/headgate-* | paste -sd,) $(GO) test -count=1 -v -run TestFlowsOutliveOtherVersions ./tests/network

.PHONY: programs-test
programs-test: ## Have real programs talk through a Service, by kube-proxy's rules and by Headgate (root)
	$(call need-root)
	@echo "build a broker of Kafka's protocol, and headgate as the tests do"
	@cd tests/programs/kafka && $(GO) build -o $(CURDIR)/bin/kafka .
	@CGO_ENABLED=0 $(GO) build -buildvcs=false -trimpath -o /dev/null ./cmd/headgate
	@HEADGATE_PROGRAMS=$$(tests/tools/programs $(PROGRAM_PACKAGES)) HEADGATE_KAFKA=$(CURDIR)/bin/kafka HEADGATE_REQUIRE_PRIVILEGED=1 \
		$(GO) test -v -count=1 -timeout 20m ./tests/programs | $(QUIETER)

.PHONY: conformance-clean
conformance-clean: ## Remove what a killed make conformance has left
	$(call need-root)
	@$(CONFORMANCE) clean

.PHONY: clean
clean: ## Remove build results
	@rm -rf bin
