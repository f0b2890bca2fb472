# The verbs of the project. CI calls the same ones.

CARGO ?= cargo
# make oracle SEED=n makes other histories, make lab-clouds SEED=n other stories.
SEED ?= 1000
# The seed of what long tests make up; they say it.
FRESH := $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')
# make bench ONLY=store runs one family.
ONLY ?= store tags objects policy watch transport nft services orchestrator clouds storage guests server flows enforce

# make up CLOUDS=sim plays in simulated public clouds.
CLOUDS ?= linux

.PHONY: up build page openapi pictures test check bench oracle fuzz lab lab-clouds lab-csi lab-kubernetes lab-terraform lab-package live-aws live-azure live-gcp live-ibm dist image deny clean

up: build ## Play the demonstration, with real packets if this is root; CLOUDS=sim plays in simulated public clouds. Ctrl-C takes everything away
	@if [ "$$(id -u)" = 0 ] && [ "$(CLOUDS)" = linux ]; then scripts/test-deps scripts/demo.packages || echo "The demonstration says what it has to leave out."; fi
	target/release/trestle up --demo --clouds $(CLOUDS)

build: page
	$(CARGO) build --release --locked -p trestle $(if $(filter sim,$(CLOUDS)),-p trestle-clouds)

page: ## The page, into web/dist; without Node.js the binary says that it has none
	scripts/page

openapi: ## web/openapi.json, from which the page's types are made, and the commands and fields that it offers
	TRESTLE_BLESS=1 $(CARGO) test --locked -p server --lib the_page_is_built
	TRESTLE_BLESS=1 $(CARGO) test --locked -p trestle --bin trestle the_page_knows
	TRESTLE_BLESS=1 $(CARGO) test --locked -p model --lib the_page_knows

pictures: ## The README's pictures, and every view in every size under target/pictures
	scripts/test-deps scripts/test-deps.d/page scripts/pictures.packages
	scripts/page --must
	TRESTLE_PICTURES=$(CURDIR)/target/pictures $(CARGO) test --locked -p trestle --test page -- --ignored pictures
	scripts/pictures

test: ## Everything that proves the project works: format, licences, lints, every test. Installs what it needs
	CARGO=$(CARGO) scripts/test

check: ## Format and lints, of what has changed since they last passed: the loop while writing
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

bench: ## One JSON line per figure: make bench ONLY="store tags"
	scripts/test-deps
	$(if $(filter server,$(ONLY)),$(CARGO) build --release --locked -p trestle)
	@for family in $(ONLY); do $(CARGO) bench --quiet --locked -p benches --bench $$family || exit 1; done

SECONDS ?= 60
fuzz: ## Bytes that others made, coverage-guided, each target for a while: make fuzz SECONDS=600
	scripts/fuzz $(SECONDS)

oracle: ## A million random policy changes, the engine held against two computations from scratch: make oracle SEED=7
	POLICY_SEED=$(SEED) $(CARGO) test --release --locked -p policy --test oracle -- --ignored --nocapture

lab: ## Long tests: crashes, large graphs, a million policy changes, 10,000 watchers, 1,000 agents, packets, bad luck, links between clouds, Go clients, IPVS in a VM, Ceph
	scripts/test-deps
	TRESTLE_CRASH_ROUNDS=500 $(CARGO) test --release --locked -p store --test crash -- --nocapture
	$(CARGO) test --release --locked -p server --test scale -- --ignored --nocapture --test-threads 1
	$(CARGO) test --release --locked -p server --test watch -- --ignored --nocapture
	$(CARGO) test --release --locked -p trestle --test idle -- --ignored --nocapture
	$(MAKE) oracle
	$(CARGO) test --release --locked -p node-policy --test random -- --ignored --nocapture
	TRESTLE_STORIES=5000 $(CARGO) test --release --locked -p orchestrator --lib random_stories -- --nocapture
	TRESTLE_CUT_CALLS=3000 $(CARGO) test --release --locked -p server --test cut_calls -- --nocapture
	labs/antrea-client/run.sh
	labs/antrea-controller/run.sh
	TRESTLE_CHURN_SEED=$(FRESH) TRESTLE_CHURN_AGENTS=1000 TRESTLE_CHURN_SECONDS=600 $(CARGO) test --release --locked -p agent --test controller churn -- --nocapture
	TRESTLE_LAB_FAULTS=all TRESTLE_LAB_SEED=$(FRESH) TRESTLE_LAB_ROUNDS=100 $(CARGO) test --release --locked -p trestle --test agent_lab -- --nocapture --test-threads 1
	TRESTLE_CHAOS_SEED=$(FRESH) TRESTLE_CHAOS_AGENTS=200 TRESTLE_CHAOS_SECONDS=600 $(CARGO) test --release --locked -p trestle --test chaos -- --nocapture --test-threads 1
	labs/go/run.sh
	labs/ocs/run.sh
	labs/glide/run.sh
	labs/go-plugin/run.sh
	labs/go-plugin/upstream.sh
	labs/kpng/run.sh
	labs/otel/run.sh
	$(CARGO) test --release --locked -p trestle --test linux_clouds -- --ignored --nocapture --test-threads 1
	labs/vm/ipvs.sh
	labs/vm/bench.sh
	labs/vm/vpn.sh
	labs/ceph.sh

image: build ## dist/trestle-image.tar: an OCI image, without Docker; the same program makes the same bytes
	scripts/image target/release/trestle dist/trestle-image.tar

dist: ## dist/: the release binary as an archive, a Debian package with a repository for apt, an SBOM, the clients, checksums
	scripts/dist

lab-clouds: ## The clouds' official clients drive the simulators; downloads them, and records what they send. Then a thousand random stories: SEED=n for others
	labs/clouds/run.sh
	TRESTLE_STORIES=1000 TRESTLE_SEED=$(SEED) $(CARGO) test --release --locked -p cloud-sim --test stories -- --nocapture random resume

lab-kubernetes: ## Kubernetes' own API server, built from Go modules once: read, and told what becomes of policies
	labs/kubernetes/run.sh

lab-csi: ## The CSI driver on a kernel with network block devices, in a VM: all of csi-sanity, and a workload through kills, growth, copies, another node
	labs/csi/run.sh

lab-terraform: ## The Terraform provider and the Go client: everything docs/terraform.md says and more, by the released terraform
	labs/terraform/run.sh

lab-package: ## What `make dist` makes, as people take it: apt in a Debian of its own, from the repository; made twice it is the same
	labs/package/run.sh

live-aws: ## The contract's suite on the AWS account of the environment; costs money
	$(CARGO) test --locked -p cloud-aws --test contract -- --ignored --nocapture

live-azure: ## The contract's suite on AZURE_RESOURCE_GROUP of AZURE_SUBSCRIPTION_ID; costs money
	$(CARGO) test --locked -p cloud-azure --test contract -- --ignored --nocapture

live-gcp: ## The contract's suite on the project GOOGLE_CLOUD_PROJECT; costs money
	$(CARGO) test --locked -p cloud-gcp --test contract -- --ignored --nocapture

live-ibm: ## The contract's suite on the IBM Cloud account of IBMCLOUD_API_KEY; costs money
	$(CARGO) test --locked -p cloud-ibm --test contract -- --ignored --nocapture

deny: ## Licences, advisories, sources; needs cargo-deny
	cargo deny check

clean:
	$(CARGO) clean
