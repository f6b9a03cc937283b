"""A controller and Open vSwitch with the dummy datapath."""
