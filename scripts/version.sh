#!/usr/bin/env bash
# Prints the version of the Debian packages that this checkout makes: that of the commit's tag, as 1.0.0 of v1.0.0, and else
# 1.0.0~dev1541+g240f2424, which is before the next release, with the number of commits and the commit. Uncommitted changes add the
# time: no two builds of different files may have one version, of which apt would keep the first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' sopa_ryu/__init__.py)
if [[ -e .git ]]; then
    if tag=$(git describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null); then
        version=${tag#v}
    else
        version+=$(git rev-list --count HEAD)+g$(git rev-parse --short=8 HEAD)
    fi
    [[ -z $(git status --porcelain) ]] || version+=.$(date --utc +%Y%m%d%H%M%S)
fi
echo "$version"
