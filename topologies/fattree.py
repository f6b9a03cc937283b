"""The fat-tree for Mininet's own command: ``mn --custom topologies/fattree.py --topo fattree,4``.

``mn`` executes this file by its path, in the system's Python, with no package around it.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(sys._getframe().f_code.co_filename).resolve().parent.parent))

from topologies.lab.mininet_topo import topo_from_command_line

topos = {"fattree": topo_from_command_line}
