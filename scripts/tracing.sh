#!/usr/bin/env bash
# Traces a hedge between two real sidecars into the receiver of the OpenTelemetry
# Collector, and checks the tree of spans that it gets. The test is a module of its
# own (lab/otlp), so that the collector stays out of what the sidecar is built from.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../lab/otlp"
go vet ./...
go test -count=1 ./...
