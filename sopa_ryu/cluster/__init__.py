"""Several controllers that share one fabric through etcd (docs/cluster.md). Nothing here is loaded without ``--sopa-cluster``."""
