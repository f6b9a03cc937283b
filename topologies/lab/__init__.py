"""The laboratory: hosts and switches of a fabric on this machine, in namespaces of their own, with an Open vSwitch of their own."""
