"""The live page: its files, which `sopa_ryu.pages` serves, and what it is told, which `sopa_ryu.live` sends."""
