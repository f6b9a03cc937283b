"""Fat-tree and failures in, OpenFlow rules and groups as plain data out: pure, without Ryu, Open vSwitch or root."""
