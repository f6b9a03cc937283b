"""The program that has TCP leave room for the option of MCS, as the kernel knows it, and the end of its links."""

import ctypes
import os
import struct

from sopa_ryu.agent.kernel import cgroup, libbpf
from sopa_ryu.agent.kernel.netns import cookie, inside


def program_of(netns: str) -> int | None:
    """Return the id of the program that serves a network namespace; None if none does."""
    with inside(netns):
        key = struct.pack("=Q", cookie())
    for program in cgroup.sock_ops_programs():
        if libbpf.program_name(program) != "sopa_mcs_ops":
            continue
        try:
            namespaces = libbpf.open_program_map(program, "mcs_namespaces")
        except libbpf.BpfMapError:  # of another run of these tests, and it has ended
            continue
        try:
            if libbpf.lookup(namespaces, key, 4) is not None:
                return program
        finally:
            os.close(namespaces)
    return None


def detach(program: int) -> None:
    number = ctypes.c_uint32(0)
    while not libbpf.call("bpf_link_get_next_id", number, ctypes.byref(number)):
        link = libbpf.call("bpf_link_get_fd_by_id", number)
        if link < 0:
            continue  # it is gone
        try:
            info, length = ctypes.create_string_buffer(16), ctypes.c_uint32(16)
            libbpf.check(libbpf.call("bpf_obj_get_info_by_fd", link, info, ctypes.byref(length)), "link")
            if struct.unpack_from("=8xI", info.raw)[0] == program:
                libbpf.check(libbpf.call("bpf_link_detach", link), "detach")
        finally:
            os.close(link)
