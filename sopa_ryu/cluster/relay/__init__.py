"""``sopa relay``: sends agents what a cluster's leader has committed to the engine, and answers readers (docs/cluster.md)."""
