"""The live page: `sopa_ryu.web.pages` serves its files, and `sopa_ryu.web.live_feed` sends the state of the fabric."""
