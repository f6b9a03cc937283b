"""The lab: hosts and switches of a fabric on this machine, in private namespaces with a private Open vSwitch."""
