#!/bin/sh
# For deploy/Containerfile, in a Debian: installs a package of SOPA, and copies to /image the files that it needs to run.
#
#   image_root.sh PACKAGE [DEBIAN_PACKAGE...]    files of the latter, too
#
# Libraries follow from what is linked. Copyrights come along, and the records of packages by which scanners know them.
set -eu

package=$1
export DEBIAN_FRONTEND=noninteractive
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d # there is no init
chmod 755 /usr/sbin/policy-rc.d
apt-get --quiet=2 update
apt-get --quiet=2 install --yes --no-install-recommends --option Dpkg::Options::=--force-unsafe-io \
    binutils ca-certificates /build/"$package"_*.deb >/dev/null
python=$(basename "$(readlink -f /usr/bin/python3)")
set -- "$@" base-files ca-certificates libbpf1 "$python-minimal" "lib$python-minimal" "lib$python-stdlib"

cd /build
# What the packages' scripts have made is there, too: bytecode, without which the start takes longer, and the authorities.
{
    dpkg-query --listfiles "$@" | grep -vE '^/usr/share/(man|doc|lintian|locale|bash-completion)/|^/etc/(init|cron|logrotate)|^/lib/systemd/|^/(usr/)?sbin/'
    find "/usr/lib/$package" "/usr/lib/$python" /etc/ssl/certs /usr/bin/sopa /usr/bin/ryu-manager /etc/alternatives/sopa /etc/alternatives/ryu-manager || true
} 2>/dev/null | grep -vE '/(idlelib|tkinter|lib2to3|ensurepip|pydoc_data|test|tests|turtledemo)/|/lib-dynload/(_dbm|_curses|_test|nis|readline)|/pygments/lexers/(__pycache__/)?[a-z]' |
    grep -vE '/(setuptools|pkg_resources|_distutils_hack)/|/distutils-precedence\.pth$|/numpy/(distutils|f2py|fft|ma|polynomial|random|testing|_core/_simd)[/.]|/ryu/services/|/netaddr/eui/.*txt$|\.(a|h)$' >files
grep -E '\.so(\.[0-9.]+)?$|/bin/' files | xargs -d '\n' ldd 2>/dev/null | sed -n 's/^.* => \(\/[^ ]*\) .*/\1/p; s/^\t\(\/[^ ]*\) (.*/\1/p' | grep -v "^/usr/lib/$package/" | sort -u >names
sort -u names - >linked <<END
$(xargs readlink -e <names)
END
{
    printf '%s\n' "$@"
    xargs dpkg-query --search <linked 2>/dev/null | sed 's/:.*//'
} | sort -u >packages
{
    cat files linked
    sed 's|.*|/usr/share/doc/&/copyright|' packages
} | sort -u | while read -r file; do
    [ -d "$file" ] && [ ! -L "$file" ] || [ ! -e "$file" ] || printf '%s\n' "$file"
done >copied

umask 022
for link in bin sbin lib lib64; do
    mkdir -p "/image/usr/$link"
    ln -s "usr/$link" "/image/$link"
done
mkdir -p /image/etc/sopa /image/proc /image/run/sopa /image/sys /image/dev /image/var/lib/dpkg/status.d /image/var/lib/sopa
tar --create --absolute-names --files-from=copied --transform='flags=r;s|^/||' |
    tar --extract --directory /image --keep-directory-symlink
# Some wheels bring symbols. numpy's are damaged by strip.
find /image -name '*.cpython-*.so' ! -path '*/numpy/*' -exec strip --strip-unneeded {} +
while read -r its; do
    dpkg-query --status "$its" >"/image/var/lib/dpkg/status.d/$its"
done <packages
install -d -m 1777 /image/tmp
# A number that stays the same, for volumes.
printf 'root:x:0:0:root:/root:/usr/sbin/nologin\nsopa:x:6653:6653:SOPA:/var/lib/sopa:/usr/sbin/nologin\n' >/image/etc/passwd
printf 'root:x:0:\nsopa:x:6653:\n' >/image/etc/group
chown 6653:6653 /image/var/lib/sopa
chmod 700 /image/var/lib/sopa
