#!/usr/bin/env bash
# All tests, or with arguments what pytest makes of them. Two processes share all of them (tests/conftest.py): one runs the labs' tests,
# each of which keeps one Open vSwitch busy, and then what the other has not yet done. The other's output comes at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pytest=.venv/bin/pytest
# Compiled modules are kept: pytest rewrites each test module's assertions, most of the time that it collects, and tests start hundreds
# of Python processes.
unset PYTHONDONTWRITEBYTECODE

# What the tests compare with. Without it tests are skipped, which fails the run unless that is accepted.
for part in install_peers install_ns3; do
    "scripts/$part.sh" --quiet || [[ ${SOPA_ALLOW_SKIPS-} == 1 ]]
done

if (($#)); then exec "$pytest" "$@"; fi

shared=$(mktemp -d)
others=
# shellcheck disable=SC2329 # the trap calls it
finish() {
    if [[ -n $others ]]; then kill "$others" 2>/dev/null || true; fi
    rm -rf "$shared"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

mkdir "$shared/modules"
echo "the tests outside the lab run beside these; their output follows"
# what bash starts in the background would ignore Ctrl-C, and so would all that the tests start
env --default-signal=INT,QUIT "$pytest" -p no:cacheprovider --durations=10 --share="$shared/modules" --labs=never \
    >"$shared/output" 2>&1 &
others=$!
failed=0
"$pytest" --durations=10 --share="$shared/modules" --labs=first || failed=$?
wait "$others" || failed=$?
others=
cat "$shared/output"
exit "$failed"
