"""Reference models that tests compare the product with."""
