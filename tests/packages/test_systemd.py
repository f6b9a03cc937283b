"""The units under systemd: in a guest with the kernel of the packages' Debian, in QEMU."""

import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.packages.roots import CHROOT, WORK, Root, higher

PACKAGES = ("systemd-sysv", "linux-image-amd64", "initramfs-tools", "iproute2", "kmod", "procps", "udev", "dbus",
            "etcd-server", "openvswitch-switch")  # fmt: skip
GUEST = WORK / f"guest-{sha256(' '.join((CHROOT.name, *PACKAGES)).encode()).hexdigest()[:8]}"
BOOT_SECONDS = 5400  # an emulated processor on a busy machine
JOB = """[Unit]
Description=The test's job
[Service]
Type=oneshot
ExecStart=/root/guest.sh
TimeoutStartSec=infinity
[Install]
WantedBy=multi-user.target
"""


def guest(directory: Path, bare: Path) -> list[Path]:
    """Return the directories of a root with systemd, a kernel, etcd and Open vSwitch, made once. To be given as ``below``."""
    if not GUEST.exists():
        root = Root(directory / "guest", [bare, CHROOT])
        root.apt("install", "python3", "libbpf1", "adduser", "libstdc++6", *PACKAGES)
        root.unmount()
        root.upper.rename(GUEST)
    return [GUEST, bare, CHROOT]


def machine() -> list[str]:
    """The processors, as in scripts/test_kernel.sh."""
    accelerator = os.environ.get("SOPA_VM_ACCEL", "tcg,thread=multi")
    if accelerator == "icount":
        return ["-accel", "tcg,thread=single", "-icount", "shift=1,sleep=off", "-smp", "1"]
    return ["-accel", accelerator, "-smp", "2"]


@pytest.mark.timeout(6000)
def test_systemd_runs_restarts_and_stops_the_units(directory: Path, bare: Path, debs: dict[str, Path], tmp_path: Path) -> None:
    made = Path(mkdtemp(dir=directory))
    root = Root(made, guest(directory, bare))
    root.install(debs["sopa-agent"], debs["sopa-controller"])
    for name in ("sopa-agent", "sopa-controller"):
        shutil.copy(higher(debs[name], tmp_path), root.path / "root")
    shutil.copy(Path(__file__).with_name("guest.sh"), root.path / "root")
    (root.path / "etc/systemd/system/job.service").write_text(JOB)
    root.run("systemctl", "enable", "job.service")
    root.run("systemctl", "mask", "serial-getty@ttyS0.service")  # its hang-up would end the output
    [kernel], [initrd] = (root.path / "boot").glob("vmlinuz-*"), (root.path / "boot").glob("initrd.img-*")
    for file in (kernel, initrd):
        shutil.copy(file, made / file.name.partition("-")[0])
    root.unmount()
    root.mount()
    disk = made / "disk.img"
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-d", root.path, "-m", "0", disk, "4G"], check=True)

    log = WORK / f"console-{CHROOT.name}.log"
    command = ["qemu-system-x86_64", *machine(), "-cpu", "max", "-m", "2048"]
    command += ["-kernel", f"{made}/vmlinuz", "-initrd", f"{made}/initrd.img"]
    command += ["-append", "root=/dev/vda rw console=ttyS0 panic=-1 quiet mitigations=off"]
    command += ["-drive", f"file={disk},if=virtio,format=raw,cache=unsafe,snapshot=on", "-nic", "none"]
    command += ["-no-reboot", "-display", "none", "-serial", f"file:{log}", "-monitor", "none"]
    subprocess.run(command, timeout=BOOT_SECONDS, check=True, stdin=subprocess.DEVNULL)
    said = log.read_text(errors="replace").replace("\r", "")
    print(said[-6000:])
    assert "=== all done" in said, said[-6000:]
    disk.unlink()
