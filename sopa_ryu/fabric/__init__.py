"""The state of the fabric, pure: what has failed, at which version, and what follows. No Ryu, no Open vSwitch, no root."""
