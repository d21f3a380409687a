#!/usr/bin/env bash
# SSLyze (PyPI: sslyze) scans HTTPS listeners and the listener of a link: versions, cipher suites,
# curves, resumption, renegotiation, early data, compression and known attacks.
# scripts/sslyze/listeners.py says what it must find, and compares that with Mozilla's
# recommendations. Everything listens on free ports of 127.0.0.1 and is gone at the end. The last
# line is the count of checks.
#
# Needs Go, openssl, and Python 3 with venv.
#
#   scripts/sslyze.sh
#
#   VENV=DIR   keeps the Python environment from run to run
#   KEEP=DIR   keeps programs and logs in DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

need openssl
workspace
virtual_python sslyze scripts/sslyze/requirements.txt
go build -o "$dir/bin/" ./cmd/remora ./cmd/remora-lab
suite 600 scripts/sslyze/listeners.py
