# Short names for the commands of this repository. The work is done by scripts/.

.PHONY: help build test nightly bench demo generate lint

help: ## list the targets
	@sed -nE 's/^([a-z]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

build: ## build remora and remora-lab into bin/
	go build -o bin/ ./cmd/remora ./cmd/remora-lab

test: ## run the tests that every change must pass: scripts/test.sh
	scripts/test.sh

nightly: ## run every suite in its long form: scripts/nightly.sh
	scripts/nightly.sh

bench: ## measure the sidecar beside other proxies: scripts/bench.sh
	scripts/bench.sh

demo: ## show what hedging does, in about a minute
	go run ./cmd/remora-lab demo

# A package takes part when its tests have a flag called update.
generate: ## rewrite the golden files of the tests
	go test $$(grep -rl --include='*_test.go' 'flag.Bool("update"' . | xargs -n 1 dirname | sort -u) -update

lint: ## check formatting, go vet and staticcheck; golangci-lint too if it is installed
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; }
	go vet ./...
	go tool staticcheck ./...
	@! command -v golangci-lint >/dev/null || golangci-lint run
