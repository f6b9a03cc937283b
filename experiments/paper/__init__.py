"""The evaluations of the papers as runs in the simulator: ``sopa experiment paper``, with tables "paper, here, ratio"."""
