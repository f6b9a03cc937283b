"""The live page: its files, which `sopa_ryu.web.pages` serves, and what it is told, which `sopa_ryu.web.live_feed` sends."""
