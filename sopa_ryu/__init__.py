"""The SOPA controller: an application for Ryu, the hosts' agent, and the `sopa` command."""

__version__ = "0.1.0"
