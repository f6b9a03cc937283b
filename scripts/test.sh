#!/usr/bin/env bash
# All tests, or with arguments what pytest makes of them. All of them run as two halves side by side: the labs' tests, each of which
# keeps one Open vSwitch busy, one after the other, and everything else. The second half's output comes when the first has ended.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pytest=.venv/bin/pytest

if (($#)); then exec "$pytest" "$@"; fi

output=$(mktemp)
others=
# shellcheck disable=SC2329 # the trap calls it
finish() {
    if [[ -n $others ]]; then kill "$others" 2>/dev/null || true; fi
    rm -f "$output"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

echo "the tests outside the lab run beside these; their output follows"
# what bash starts in the background would ignore Ctrl-C, and so would all that the tests start
env --default-signal=INT,QUIT "$pytest" -p no:cacheprovider --ignore=tests/lab >"$output" 2>&1 &
others=$!
failed=0
"$pytest" tests/lab || failed=$?
wait "$others" || failed=$?
others=
cat "$output"
exit "$failed"
