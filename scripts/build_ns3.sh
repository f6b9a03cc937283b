#!/bin/bash
# Builds ns-3 from Debian 12's source package for speed: without logging, as one static library that is optimised together with the
# simulator, and with experiments/ns3/patches. Results are the same. Everything is in build/ns3-source; needs no root.
#
#   --quiet  say nothing when it is built already
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
WHERE=$PWD/build/ns3-source
LIBRARY=$WHERE/ns-3.37/build/lib/libns3.37-static.a
die() {
    printf 'install-ns3: %s\n' "$*" >&2
    exit 1
}

made=$(cat experiments/ns3/patches/*.patch "${BASH_SOURCE[0]}" | sha256sum)
if [[ -e $LIBRARY && -e $WHERE/made && $(<"$WHERE/made") == "$made" ]]; then
    [[ ${1-} == --quiet ]] || echo "install-ns3: ns-3 is built from source already"
    exit
fi
for program in cmake g++ patch tar bzip2; do
    command -v "$program" >/dev/null || die "$program is missing"
done
mkdir -p "$WHERE/lists/partial"
cd "$WHERE"
rm -rf made ns-3.37 ./*.part
# Lists of source packages in a place of their own: the machine's stay as they are.
cat >debian.sources <<'EOF'
Types: deb-src
URIs: http://deb.debian.org/debian
Suites: bookworm
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
EOF
own=(-o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$WHERE" -o "Dir::State::lists=$WHERE/lists"
    -o APT::Sandbox::User="$(id -un)" -o "Dir::Cache=$WHERE" -o "Dir::Cache::archives=$WHERE")
echo "install-ns3: getting Debian's source of ns-3"
apt-get --quiet --quiet "${own[@]}" update || die "no list of Debian's source packages (is there a network?)"
apt-get --quiet --quiet "${own[@]}" source --download-only ns3=3.37-2 || die "Debian's source of ns-3 could not be had"
echo "install-ns3: unpacking"
mkdir ns.part
tar --extract --bzip2 --file ns3_3.37.orig.tar.bz2 --directory ns.part ns-allinone-3.37/ns-3.37
mv ns.part/ns-allinone-3.37/ns-3.37 .
rm -rf ns.part
for patch in "$OLDPWD"/experiments/ns3/patches/*.patch; do
    patch --quiet --strip 1 --directory ns-3.37 <"$patch" || die "$patch does not fit"
done
echo "install-ns3: building (some minutes)"
# No -march=native: results are to be the same on every machine, and fused multiplication and addition would round otherwise.
cmake -S ns-3.37 -B cmake -DCMAKE_BUILD_TYPE=release -DNS3_ENABLED_MODULES=internet -DNS3_STATIC=ON -DNS3_LOG=OFF \
    -DNS3_ASSERT=OFF -DNS3_NATIVE_OPTIMIZATIONS=OFF -DNS3_LINK_TIME_OPTIMIZATION=ON -DNS3_GSL=OFF -DNS3_GTK3=OFF \
    -DNS3_SQLITE=OFF -DNS3_EMU=OFF -DNS3_TAP=OFF -DNS3_VISUALIZER=OFF -DNS3_WARNINGS=OFF -DNS3_PRECOMPILE_HEADERS=OFF \
    >cmake.log 2>&1 || die "cmake failed: $WHERE/cmake.log"
cmake --build cmake --target ns3.37-static --parallel "$(nproc)" >build.log 2>&1 || die "the build failed: $WHERE/build.log"
[[ -e $LIBRARY ]] || die "the build has made no $LIBRARY: $WHERE/build.log"
rm -rf cmake lists ./*.bin ns3_3.37* # 200 MB that nobody needs any more
echo "$made" >made
echo "install-ns3: ns-3 is built from source"
