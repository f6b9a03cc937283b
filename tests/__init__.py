"""The tests. A package, so that no other of this name, which some distributions install, stands before it."""
