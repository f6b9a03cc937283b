"""The Linux kernel: BPF programs and maps, tc and XDP attachment, network namespaces, link attributes."""
