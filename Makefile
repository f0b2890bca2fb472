# The verbs of the project. CI calls the same ones.

CARGO ?= cargo
# make bench ONLY=store runs one family.
ONLY ?= store tags policy watch transport nft services orchestrator clouds storage

.PHONY: up build test lint bench lab lab-clouds live-aws live-gcp deny clean

up: build ## Start a controller here; Ctrl-C stops it
	target/release/trestle up

build:
	$(CARGO) build --release --locked -p trestle

test: ## Everything that proves the project works; installs what it needs
	scripts/test-deps
	$(CARGO) test --workspace --locked

lint: ## Format and lints
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

bench: ## One JSON line per figure: make bench ONLY="store tags"
	scripts/test-deps
	@for family in $(ONLY); do $(CARGO) bench --quiet --locked -p benches --bench $$family || exit 1; done

lab: ## Long tests: many crashes, large graphs, a million policy changes, IPVS in a VM, a Ceph cluster
	scripts/test-deps
	TRESTLE_CRASH_ROUNDS=500 $(CARGO) test --release --locked -p store --test crash -- --nocapture
	$(CARGO) test --release --locked -p server --test scale -- --ignored --nocapture --test-threads 1
	$(CARGO) test --release --locked -p trestle --test idle -- --ignored --nocapture
	$(CARGO) test --release --locked -p policy --test oracle -- --ignored --nocapture
	labs/vm/ipvs.sh
	labs/ceph.sh

lab-clouds: ## The clouds' official clients drive the simulators; downloads them, and records what they send
	labs/clouds/run.sh

live-aws: ## The contract's suite on the AWS account of the environment; costs money
	$(CARGO) test --locked -p cloud-aws --test contract -- --ignored --nocapture

live-gcp: ## The contract's suite on the project GOOGLE_CLOUD_PROJECT; costs money
	$(CARGO) test --locked -p cloud-gcp --test contract -- --ignored --nocapture

deny: ## Licences, advisories, sources; needs cargo-deny
	cargo deny check

clean:
	$(CARGO) clean
