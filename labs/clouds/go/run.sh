#!/bin/sh
# A cloud's Go client against the simulators: run.sh aws|azure|gcp|ibm URL, with `go` in the PATH.
set -eu
cd "$(dirname "$0")"
exec go run . "$@"
