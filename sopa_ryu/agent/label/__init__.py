"""How packets get their labels: path sets, tables and the programs that write them."""
