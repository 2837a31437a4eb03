# Every target does its own set-up: a bare Debian-like machine with root, Python 3.11 and a C compiler is enough.
SHELL := /bin/bash
PYTHON ?= python3.11
VENV := .venv
RUN := $(VENV)/bin/python
LAB := $(RUN) -m hack.lab

# Images of Python often say that no bytecode is written: then all of ours is compiled anew in each process that a test starts.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.ready: requirements-dev.lock
	@command -v $(PYTHON) >/dev/null || { echo "Python: there is no $(PYTHON); install it, or name another one by PYTHON=" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || { \
	    echo "$(PYTHON) cannot make a virtual environment: install its package for that" >&2; exit 1; }; \
	  echo "python3.11 cannot make a virtual environment; installing python3.11-venv"; \
	  apt-get update -qq && apt-get install -y -qq python3.11-venv >/dev/null && $(PYTHON) -m venv $(VENV); }
	@echo "installing the locked Python packages"
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

.PHONY: machine
machine: # Tell at once what this machine lacks, before anything is installed
	@command -v $(PYTHON) >/dev/null || { echo "Python: there is no $(PYTHON); install it, or name another one by PYTHON=" >&2; exit 1; }
	@$(PYTHON) -m hack.lab.build.prerequisites

.PHONY: demo
demo: machine $(VENV)/.ready ## Run the main job: one stock RayJob over two worker clusters, on real clusters made here; NETWORK=islands: without a route
	@$(RUN) -m hack.demo --network $(or $(NETWORK),flat)

.PHONY: kind-demo
kind-demo: $(VENV)/.ready ## The same on three clusters of kind, where there is Docker
	@$(RUN) -m hack.kind demo

.PHONY: kind-down
kind-down: $(VENV)/.ready ## Delete the clusters of kind-demo
	@$(RUN) -m hack.kind down

# `make test` takes what is not marked long, and its examples and faults are always the same. `make test-all` takes long ones, too, draws
# them, examples, faults and mutants, and lets those integration tests that share a controller wait as long as users do.
ALL ?=
# Of the long ones on the lab those of every third file, drawn anew each time: all of them at once (SHARE=1) take more than an hour on two
# processors.
SHARE ?= 3
LONG_SHARE := $(if $(ALL),$(SHARE),1)
PICK := not byhand$(if $(ALL),$(if $(filter 1,$(SHARE)), and not brief), and not long)
PACE := $(if $(ALL),real,quick)
PROFILE := $(if $(ALL),drawn,short)
UNIT_TESTS := test-unit $(if $(ALL),test-simulation)
TRIALS := $(if $(ALL),test-bursts upgrade test-islands)
STRIKES := $(if $(ALL),--n 15,--n 15 --seed 1284109)

.PHONY: test
test: ## Prove each promise of the README once, on real clusters made here
	@$(MAKE) --no-print-directory test-ready && $(MAKE) --no-print-directory test-parts

.PHONY: test-all
test-all: ## Pass all tests, of the long ones on the lab those of every third file, drawn anew each time; SHARE=1 for all of them
	@$(MAKE) --no-print-directory test-ready && $(MAKE) --no-print-directory test-parts ALL=yes
	@$(RUN) -m hack.mutants --n 3

# A lab takes a minute to come up, in which a processor and a half are busy, and lint takes half of that one.
.PHONY: test-ready
test-ready: $(VENV)/.ready
	@$(MAKE) --no-print-directory -j2 lint lab-ready

# Those that share a controller keep both processors busy. Those after them wait for much of their time, so there are two lanes, each with a
# lab of its own; and the unit tests run on what all of these leave. What the other lanes found is told when each of them ends. Where there
# is less memory than two labs and Ray take together, or where there are fewer than four processors, there is one lab, and those with Ray,
# faults, and those that are alone come one after the other.
LANES ?= $(shell $(PYTHON) -m hack.lab.build.prerequisites --lanes)
# The lab of this run, and those after it: of the tests that are alone, and of other versions.
OWN_LAB := $(or $(RAYSPAN_LAB),0)
NEXT_LAB = $(shell echo $$(( ($(OWN_LAB) + 1) % 8 )))
THIRD_LAB = $(shell echo $$(( ($(OWN_LAB) + 2) % 8 )))
# What ends make from outside ends what it waits for, too, which tidies up; the second wait is for that. Nothing begins after it.
WAITED = & part=$$!; trap 'ended=yes; kill $$part' INT TERM HUP; wait $$part; wait $$part; code=$$?
LOGGED = >build/$@.log 2>&1 $(WAITED); cat build/$@.log; exit $$code
PART = $(MAKE) --no-print-directory
# Where the kernel weighs sessions and not processes, `nice` counts among those of a session alone, and what runs on the lab has its own. A
# session of 5 weighs a third of one of 0; of 19, what unit tests start did not begin within 100 s while Ray's nodes did.
GROUP := /proc/self/autogroup
# The tests that were red in any of them, said once more at the end of all.
RED := build/red.log
# One after the other, whatever becomes of those before: by a make that knows of no lanes, but of -n.
IN_TURN = MAKEFLAGS=$(findstring n,$(firstword -$(MAKEFLAGS))) $(PART) --keep-going $(MAKEOVERRIDES)

.PHONY: test-parts test-parts-3 test-parts-2 lane-together lane-alone lane-ray lane-rest lane-unit
test-parts: $(VENV)/.ready
	@mkdir -p build
	+@rm -f $(RED); lanes=$(LANES); RAYSPAN_RED=$(CURDIR)/$(RED) $(PART) test-parts-$$lanes LANES=$$lanes $(WAITED); \
	[ ! -s $(RED) ] || cat $(RED); exit $$code

test-parts-3:
	+@$(PART) --keep-going -j3 lane-ray lane-alone lane-unit

test-parts-2:
	+@$(PART) lane-together $(WAITED); first=$$code; \
	[ "$$ended" ] || { $(PART) --keep-going -j2 lane-rest lane-unit $(WAITED); }; [ $$first$$code = 00 ]

lane-together:
	+@$(PART) test-together

lane-ray: lane-together
	+@$(IN_TURN) test-e2e test-chaos $(TRIALS)

lane-alone: lane-together
	+@RAYSPAN_LAB=$(NEXT_LAB) $(PART) test-alone $(LOGGED)

lane-rest:
	+@$(IN_TURN) test-e2e test-chaos $(TRIALS) test-alone

lane-unit:
	+@setsid sh -c '[ ! -w $(GROUP) ] || echo 5 >$(GROUP); exec nice -n 19 "$$@"' - env $(IN_TURN) $(UNIT_TESTS) $(LOGGED)

.PHONY: lint
lint: $(VENV)/.ready ## Check format, lint, types and the import contracts
	@$(VENV)/bin/ruff format --check --quiet . && $(VENV)/bin/ruff check --quiet .
	@$(VENV)/bin/mypy
	@PYTHONPATH=. $(VENV)/bin/lint-imports --no-logo

.PHONY: test-unit
test-unit: $(VENV)/.ready ## Test the pure core: tables, properties, golden pods
	@$(RUN) -m pytest tests/unit -n 3 --dist worksteal --hypothesis-profile=$(PROFILE) -m "$(PICK)"

.PHONY: test-simulation
test-simulation: $(VENV)/.ready # As `make simulation`, for three minutes on what the lanes leave of a processor
	@$(RUN) -m hack.simulation --campaign 3 --workers 1 || { echo "a simulation broke a promise: see build/lane-unit.log" >>$${RAYSPAN_RED:-/dev/null}; exit 1; }

.PHONY: test-integration
test-integration: test-together test-alone ## Test against real API servers, Kueue and KubeRay, with fake nodes

.PHONY: test-together
test-together: $(VENV)/.ready # Those that share a controller
	@$(LAB) up --fake-nodes 2
	@$(RUN) -m pytest tests/integration -n 4 --dist loadfile --pace $(PACE) --long-share $(LONG_SHARE) -m "not alone and ($(PICK))"

.PHONY: test-alone
test-alone: $(VENV)/.ready # Those beside which no other may run
	@$(LAB) up --fake-nodes 2
	@$(RUN) -m pytest tests/integration --long-share $(LONG_SHARE) -m "alone and ($(PICK))"

.PHONY: test-e2e
test-e2e: $(VENV)/.ready ## Test what a user sees, with real Ray
	@$(LAB) up --fake-nodes 2
	@$(RUN) -m pytest e2e --long-share $(LONG_SHARE) -m "$(PICK)"

.PHONY: test-chaos
test-chaos: $(VENV)/.ready ## Let faults strike running gangs, with outages of up to 20 s
	@$(LAB) up --fake-nodes 2
	@$(RUN) -m hack.trials.chaos $(STRIKES) --longest 20
	@$(if $(ALL),$(RUN) -m hack.trials.chaos --n 6 --seed 509213 --longest 20 --serve --as-is)

.PHONY: test-bursts
test-bursts: $(VENV)/.ready # As `make bursts`, but for how long a worker waits without room
	@$(LAB) up --fake-nodes 2
	@$(RUN) -m hack.trials.bursts --wait 30

# On a lab of its own, which goes in the end: clusters with the same pod CIDR serve no other test.
.PHONY: test-islands
test-islands: $(VENV)/.ready ## Test clusters without a route, behind NAT and with the same pod CIDR
	@export RAYSPAN_LAB=$(THIRD_LAB); $(LAB) up --network islands && $(RUN) -m pytest tests/islands --long-share $(LONG_SHARE); code=$$?; $(LAB) down && exit $$code

.PHONY: compatibility
compatibility: $(VENV)/.ready ## Put every sample of KubeRay to real API servers, and write docs/compatibility.md and the golden pods anew
	@$(LAB) up
	@$(RUN) -m hack.testbed.install
	@$(RUN) -m hack.corpus
	@$(RUN) -m pytest --quiet tests/unit/rewrite/test_rewriter.py -k reviewed --update-golden

.PHONY: bench
bench: $(VENV)/.ready ## Measure; the figures of one run are to be compared with each other only
	@$(RUN) -m hack.bench

SEED ?=
DRAW = $(if $(SEED),--seed $(SEED))

.PHONY: oracle
oracle: N ?= 200
oracle: $(VENV)/.ready ## Compare the quota arithmetic with Kueue itself: N=200 random trees, those of SEED=7 if it is given
	@$(LAB) up
	@$(RUN) -m hack.oracle --n $(N) $(DRAW)

CLUSTERS ?= 5

.PHONY: gangs
gangs: N ?= 40
gangs: $(VENV)/.ready ## Run N=40 gangs (those of SEED=7 if given) at once over CLUSTERS=5: all finish, none beyond quota, little idle
	@$(LAB) up --workers $(CLUSTERS) --fake-nodes 2
	@$(RUN) -m hack.trials.gangs --gangs $(N) $(DRAW)

.PHONY: bursts
bursts: $(VENV)/.ready ## Let a job grow and shrink, from 0 to 8 and back and by 1 and by 50: nothing stays behind, and what it costs
	@$(LAB) up --fake-nodes 2
	@$(RUN) -m hack.trials.bursts

.PHONY: soak
soak: N ?= 200
soak: MINUTES ?= 30
soak: $(VENV)/.ready ## Run N=200 small jobs over MINUTES=30 and see whether the controller keeps anything of them
	@$(RUN) -m hack.trials.soak --jobs $(N) --minutes $(MINUTES) $(DRAW)

.PHONY: chaos
chaos: N ?= 50
chaos: $(VENV)/.ready ## Let N=50 faults (those of SEED=7 if given) strike running gangs, those of KINDS="cut scaled" alone, beside a job of real Ray, BESIDE=ray or BESIDE=serve, and on borrowed quota, BORROW=yes: nothing is lost or doubled
	@$(LAB) up --fake-nodes 2
	@$(RUN) -m hack.trials.chaos --n $(N) $(DRAW) $(if $(KINDS),--kinds $(KINDS)) $(if $(BESIDE),--$(BESIDE)) $(if $(BORROW),--borrow)

.PHONY: simulation
simulation: MINUTES ?= 10
simulation: $(VENV)/.ready ## Run the real controller on virtual time for MINUTES=10, with drawn faults (from SEED=7 on if it is given): no promise is broken
	@$(RUN) -m hack.simulation --campaign $(MINUTES) $(DRAW)

.PHONY: mutants
mutants: $(VENV)/.ready ## Break the product in each of the ways of hack/mutants, or in N=3 that are drawn: a test must go red each time
	@$(LAB) up --fake-nodes 2
	@$(RUN) -m hack.mutants $(if $(N),--n $(N))

.PHONY: libraries
libraries: $(VENV)/.ready ## Run Ray's Data, Tune and Train over two clusters, of which one is cut off in the middle
	@$(LAB) up
	@$(RUN) -m pytest e2e/test_libraries.py -s

.PHONY: islands
islands: $(VENV)/.ready ## Run twenty Ray workers on two islands of ten: does the head see all of them?
	@$(LAB) up
	@$(RUN) -m pytest e2e/test_islands.py -s

.PHONY: alerts
alerts: $(VENV)/.ready ## Try the alerts by promtool, and every query of the dashboard by a real Prometheus, which is built for it
	@$(LAB) up --fake-nodes 2
	@$(RUN) -m pytest tests/integration/test_monitoring.py

SECONDS_CUT ?= 30 90

.PHONY: cuts
cuts: $(VENV)/.ready ## Cut a running RayJob's cluster off in every way for SECONDS_CUT="30 90" each: nothing runs twice, nothing is lost
	@$(LAB) up
	@$(RUN) -m hack.trials.cuts --seconds $(SECONDS_CUT)

.PHONY: serving
serving: $(VENV)/.ready ## Ask a RayService 50 times a second while it is upgraded, and one of its clusters cut off and drained: who fails
	@$(LAB) up --fake-nodes 2
	@$(RUN) -m hack.trials.serving

# The release before this one. Before there is one, a commit that passed all tests; and in a clone of the last commits alone this one: then
# it says that nothing was upgraded.
GIT := git -c safe.directory=$(CURDIR)
SINCE ?= $(shell $(GIT) describe --tags --abbrev=0 HEAD^ 2>/dev/null || $(GIT) rev-parse --quiet --verify d74b14b6^{commit} || echo HEAD)

.PHONY: upgrade
upgrade: $(VENV)/.ready ## Start gangs under the last release's controller, or that of SINCE=COMMIT, install this checkout over it: all go on
	@$(LAB) up --fake-nodes 2
	@$(RUN) -m hack.trials.upgrade --since "$(SINCE)"

.PHONY: versions
versions: $(VENV)/.ready ## Run other versions of Kubernetes, Kueue and KubeRay, on a lab of their own, and write docs/versions.md; PAIRS="older-kueue" for some
	@RAYSPAN_LAB=$(THIRD_LAB) $(RUN) -m hack.trials.versions $(if $(PAIRS),--only $(PAIRS))

.PHONY: lab-ready
lab-ready: $(VENV)/.ready # As all tests take it
	@$(LAB) up --fake-nodes 2

.PHONY: lab
lab: $(VENV)/.ready ## Bring up the lab: clusters mgr, east and west
	@$(LAB) up

.PHONY: lab-down
lab-down: $(VENV)/.ready ## Take the lab down, with the second one of the tests, and check that nothing of it is left
	@RAYSPAN_LAB=$(NEXT_LAB) $(LAB) down
	@$(LAB) down

.PHONY: clean
clean: ## Remove what was made in this checkout (the lab and its cache stay)
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
