"""``python -m sopa_ryu.cli``."""

from sopa_ryu.cli import main

main(prog_name="sopa")
