#!/bin/sh
# A command that always fails, for real: started, slowed, quarantined; then looked at, and put right.
# The waits are shortened so that it takes a second; everything happens in a scratch state folder.
set -u
PATH="$(dirname "$0")/../.venv/bin:$PATH"
FLYBALL_STATE_DIR=$(mktemp -d)
trap 'rm -rf "$FLYBALL_STATE_DIR"' EXIT
export FLYBALL_STATE_DIR
export FLYBALL_QUARANTINE__COOLDOWN_LADDER_SECONDS='[0.05]'
export FLYBALL_CRASH_POLICY__TRANSIENT_DELAY_SECONDS=0.05
export FLYBALL_CRASH_POLICY__FLAPPING_DELAY_SECONDS=0.1

show() { printf '\n$ flyball %s\n' "$*"; flyball "$@"; }

show run --no-tty --name agent -- sh -c 'echo "no such key" >&2; exit 3'
show status
show reset --all --yes
show run --no-tty --name agent -- true
