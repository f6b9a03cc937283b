#!/bin/bash
# Runs tests of the host's side and of the kernel's datapath with Debian's own kernels, booted in QEMU, which is ten to twenty times slower than
# this machine:
# SOPA_VM_ACCEL=kvm where that works (a nested KVM may hang).
# SOPA_VM_ACCEL=icount on a busy machine: one processor, whose clock follows the instructions that it has executed, so that what the guest waits
# for does not depend on what else this machine does, and where it only waits no time passes here.
#
#   scripts/test_kernel.sh [--kernel PREFIX] [PYTEST_ARGUMENT...]
#
#   --kernel PREFIX  only kernels whose version begins so, such as 6.1; by default Debian 12's and that of its backports
#
# The arguments go to pytest; by default tests/bpf tests/kernel_datapath. The guest has no network, and its disk is thrown away. Debian for it is in
# build/vm/root (1.5 GB, made once in some five minutes; make clean removes it).
set -euo pipefail

PACKAGES=(qemu-system-x86 debootstrap e2fsprogs)
GUEST=linux-image-amd64,systemd-sysv,openvswitch-switch,mininet,iperf3,python3-venv,clang,llvm,libbpf-dev,linux-libc-dev
GUEST+=,ca-certificates,iproute2,tcpdump,iputils-ping,procps,net-tools,kmod,ethtool,xz-utils
MODULES='veth macvlan tun sch_ingress cls_bpf act_bpf sch_tbf sch_fq tcp_bbr bridge vxlan openvswitch'
SUITE=bookworm
MIRROR=http://deb.debian.org/debian
BOOT_SECONDS=5400

cd "$(dirname "${BASH_SOURCE[0]}")/.."
script=test-kernel
. scripts/debian.sh
checkout=$PWD
vm=$checkout/build/vm
root=$vm/root

prefix=
if [[ ${1-} == --kernel ]]; then
    prefix=${2:?--kernel needs the beginning of a version}
    shift 2
fi
(($#)) || set -- tests/bpf tests/kernel_datapath
((EUID == 0)) || die "only root can make the guest's disk: sudo make test-kernel"

install_missing "70 MB, less than a minute" "${PACKAGES[@]}"

# A root that is there is whole: it gets its name when it is.
if [[ ! -d $root ]]; then
    mkdir -p "$vm"
    rm -rf "${root:?}.part"
    say "making the guest's Debian in $root (some five minutes, once)"
    debootstrap --variant=minbase --include="$GUEST" "$SUITE" "$root.part" "$MIRROR" |
        grep --line-buffered -E '^I: (Retrieving InRelease|Extracting|Installing core|Configuring linux-image)' || true
    [[ -d $root.part/boot ]] || die "debootstrap failed: $root.part/debootstrap/debootstrap.log says why"
    echo "deb $MIRROR $SUITE-backports main" >"$root.part/etc/apt/sources.list.d/backports.list"
    say "installing the kernel of $SUITE-backports there"
    chroot "$root.part" sh -c "apt-get --quiet update && DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes \
        --no-install-recommends --target-release $SUITE-backports install linux-image-amd64" >"$vm/backports.log" 2>&1 ||
        die "the kernel of backports could not be installed: $vm/backports.log says why"
    rm -rf "$root.part/var/cache/apt/archives" "$root.part/var/lib/apt/lists"
    mv "$root.part" "$root"
fi

say "copying this checkout to the guest's disk"
rm -rf "${root:?}$checkout"
mkdir -p "$root$checkout"
# with its bytecode, which takes the guest a minute to make
tar --create --exclude=./build --exclude=./.git --exclude=./results . |
    tar --extract --directory "$root$checkout"
cat >"$root/usr/local/sbin/guest-job" <<'E2'
#!/bin/bash
exec </dev/null >/dev/console 2>&1
for mount in proc:/proc sysfs:/sys devtmpfs:/dev; do
    mountpoint --quiet "${mount#*:}" || mount -t "${mount%:*}" none "${mount#*:}"
done
mkdir -p /dev/pts /run
mount -t devpts none /dev/pts
mount -t tmpfs none /run
mount -t bpf none /sys/fs/bpf
mount -t cgroup2 none /sys/fs/cgroup
ip link set lo up
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb
tr -d '\000' </dev/vdb >/run/job.sh
bash /run/job.sh
echo "=== exit $?"
sync
echo o >/proc/sysrq-trigger # powers off
sleep 60
E2
chmod 755 "$root/usr/local/sbin/guest-job"
rm -f "$vm/disk.img"
mke2fs -q -F -t ext4 -d "$root" -m 0 "$vm/disk.img" 6G

job=$vm/job.raw
{
    # shellcheck disable=SC2016 # the guest expands it
    printf 'for module in %s; do modprobe "$module" || true; done\n' "$MODULES"
    printf 'cd %q && .venv/bin/python -m sopa_ryu.agent.kernel.build >/dev/null &&\n' "$checkout"
    # all markers: pyproject.toml deselects what needs such a kernel
    printf 'SOPA_SLOWER=10 .venv/bin/pytest -p no:cacheprovider --timeout=2400 --color=no -m ""'
    printf ' %q' "$@"
    echo
} >"$job"
truncate --size 64K "$job"

machine=(-accel "${SOPA_VM_ACCEL:-tcg,thread=multi}" -smp 2)
# 2 ns for each instruction. With two processors such a guest does not get past their start.
[[ ${SOPA_VM_ACCEL-} != icount ]] || machine=(-accel "tcg,thread=single" -icount "shift=1,sleep=off" -smp 1)

ran=0
for kernel in "$root"/boot/vmlinuz-"$prefix"*; do
    [[ -e $kernel ]] || die "no kernel begins with $prefix; there are $(cd "$root/boot" && echo vmlinuz-* | sed 's/vmlinuz-//g')"
    version=${kernel##*/vmlinuz-}
    log=$vm/console-$version.log
    say "Linux $version: pytest $*"
    timeout "$BOOT_SECONDS" qemu-system-x86_64 "${machine[@]}" -cpu max -m 4096 \
        -kernel "$kernel" -initrd "$root/boot/initrd.img-$version" \
        -append "root=/dev/vda rw console=ttyS0 panic=-1 init=/usr/local/sbin/guest-job quiet mitigations=off" \
        -drive "file=$vm/disk.img,if=virtio,format=raw,cache=unsafe,snapshot=on" -drive "file=$job,if=virtio,format=raw" \
        -nic none -no-reboot -display none -serial stdio -monitor none </dev/null | sed --unbuffered 's/\r$//' | tee "$log" || true
    grep -q '^=== exit 0$' "$log" || die "with Linux $version tests have failed, or not ended in $BOOT_SECONDS s: $log"
    ran=$((ran + 1))
done
say "$ran kernels: all tests passed"
