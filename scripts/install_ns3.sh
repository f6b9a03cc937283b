#!/bin/bash
# Installs Debian's ns-3 and what builds a program with it, and builds the simulator of sopa experiment run --backend ns3.
#
#   --optimised  build ns-3 itself, too, from Debian 12's source package: the same results in little more than half the time
#   --quiet      say nothing when there is nothing to do
#
# The simulator is made for Debian 12's ns-3. On another release that is always built from its source.
set -euo pipefail

# libns3-dev alone leaves CMake's targets of ns-3 without the programs and libraries that they name
PACKAGES=(libns3-dev ns3 libgsl-dev cmake make g++)

case ${1-} in
"" | --quiet | --optimised) ;;
*)
    echo "usage: install_ns3.sh [--optimised|--quiet]" >&2
    exit 2
    ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
script=install-ns3
. scripts/debian.sh
release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
[[ $release == bookworm ]] || PACKAGES=(cmake make g++)
if [[ $release != bookworm || ${1-} == --optimised ]]; then
    install_missing "12 MB and what it needs, one or two minutes" "${PACKAGES[@]}" patch bzip2
    scripts/build_ns3.sh "$@"
else
    install_missing "12 MB and what it needs, one or two minutes" "${PACKAGES[@]}"
fi
.venv/bin/python -c '
import sys
from experiments.ns3 import SimulatorError, build
said = []
def say(line):
    said.append(line)
    print("install-ns3:", line, flush=True)
try:
    program = build(say)
except SimulatorError as error:
    sys.exit(f"install-ns3: {error}")
if said or "--quiet" not in sys.argv:
    print("install-ns3: the simulator is", program)
' "$@"
if [[ $release == bookworm && ${1-} == --optimised ]]; then
    say "comparing it with Debian's ns-3"
    .venv/bin/pytest -q -p no:cacheprovider tests/ns3/compare_builds.py
fi
