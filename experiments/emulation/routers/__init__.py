"""The fat-tree as Linux routers with FRR."""
