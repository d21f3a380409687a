#!/usr/bin/env bash
# Finds errors in the suites themselves before they run: names that are not there, calls without
# an argument, variables that are not set. pylint reports only errors, ShellCheck errors and warnings.
# Go has its own: go vet and staticcheck, in scripts/test.sh.
#
# Needs Python 3 with venv, and shellcheck.
#
#   scripts/lint.sh
#
#   VENV=DIR   keeps the Python environment from run to run
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec </dev/null
source scripts/lib.sh

need shellcheck
# SC2154: free_ports sets the variables that it is given.
mapfile -t files < <(git ls-files '*.sh' .ci/run)
shellcheck --severity=warning --external-sources --exclude=SC2154 "${files[@]}"

virtual_python lint scripts/lint/requirements.txt
# Folder by folder, as the suites run: several have a module of the same name. Imports are not
# checked: this environment lacks the modules that the suites import.
git ls-files '*.py' | xargs -n 1 dirname | sort -u | while IFS= read -r folder; do
	PYTHONPATH=scripts "$python" -m pylint --errors-only --disable=import-error,no-name-in-module "$folder"/*.py
done
echo "${#files[@]} shell scripts and $(git ls-files '*.py' | wc -l) Python files have no error"
