"""Fabrics for Mininet's own command: ``mn --custom topologies/fattree.py --topo fattree,4``, or ``--topo clos,FILE``.

``mn`` executes this file by its path, in the system's Python, with no package around it.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(sys._getframe().f_code.co_filename).resolve().parent.parent))

from topologies.lab.mininet_topo import topo_from_command_line, topo_from_fabric_file

topos = {"fattree": topo_from_command_line, "clos": topo_from_fabric_file}
