#!/usr/bin/env bash
# All tests, or with arguments what pytest makes of them. First those of function, shared by several processes, which pass on a machine of
# any speed; then those of time (tests/timing), alone and one after another. At the end: the slowest, what came near its bound, and what
# was measured, from the run's record, build/tests/record.jsonl, which is there only after a whole run.
#
# SOPA_TEST_WORKERS: how many processes share the tests of function; two more than there are processors by default, as tests wait a
# fifth of the time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pytest=.venv/bin/pytest
# Compiled modules are kept: pytest rewrites each test module's assertions, most of the time that it collects, and tests start hundreds
# of Python processes.
unset PYTHONDONTWRITEBYTECODE

say() { echo "test: $*"; }
die() {
    echo "test: $*" >&2
    exit 2
}

((EUID == 0)) || (($#)) || die "the tests load eBPF programs and start switches, which takes root: sudo make test; tests/unit needs none: .venv/bin/pytest tests/unit"

# What the tests compare with. Without it tests are skipped, which fails the run unless that is accepted.
for part in install_peers install_ns3; do
    "scripts/$part.sh" --quiet || [[ ${SOPA_ALLOW_SKIPS-} == 1 ]]
done

# In the background, so that a signal to this script reaches them at once, and in a session of their own, so that Ctrl-C reaches
# them once, by `finish`: the second one would end what puts back what the tests have changed.
running=
run() {
    setsid env --default-signal=INT,QUIT "$pytest" "$@" 8>&- &
    running=$!
    local status=0
    wait "$running" || status=$?
    running=
    return "$status"
}
# shellcheck disable=SC2329 # the trap calls it
finish() {
    trap '' INT TERM HUP
    # SIGTERM would leave what the tests have started
    if [[ -n $running ]] && kill -INT "$running" 2>/dev/null; then
        say "interrupted: the tests end what they have started"
        wait "$running" || true
    fi
    rm -f "${SOPA_TEST_RECORD-}"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

if (($#)); then
    run "$@"
    exit
fi

MIN_FREE_MIB=1024
for directory in . "${TMPDIR:-/tmp}"; do
    free=$(df --output=avail --block-size=1M "$directory" | tail -n 1)
    ((free >= MIN_FREE_MIB)) || die "$directory has $free MiB left and the tests need $MIN_FREE_MIB: free some, or set TMPDIR to another disk"
done

results=build/tests
mkdir -p "$results"
exec 8>"$results/lock"
flock --nonblock 8 || die "another run of the tests in $PWD is not over: wait for it, or end it"
record=$results/record.jsonl
rm -f "$record" "$record".*
export SOPA_TEST_RECORD=$PWD/$record.partial
workers=${SOPA_TEST_WORKERS:-$(($(nproc) + 2))}
failed=0
SECONDS=0
run --ignore=tests/timing --numprocesses="$workers" --no-loadscope-reorder || failed=$?
((failed < 2)) || exit "$failed" # interrupted, or not begun
say "function: $SECONDS s; now what measures time, alone"
SECONDS=0
run -p no:cacheprovider tests/timing || failed=$?
((failed < 2)) || exit "$failed"
say "time: $SECONDS s"
mv "$SOPA_TEST_RECORD" "$record"
.venv/bin/python -m tests.helpers.report "$record"
exit "$failed"
