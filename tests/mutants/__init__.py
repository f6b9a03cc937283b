"""Defects of this domain, made one at a time in a copy of the checkout: which do `tests/unit` and `tests/bpf` find?

A table of defects, and neither mutmut nor cosmic-ray: those make thousands of generic mutants, most of them trivial or equivalent,
know no C and no C++, and would take days. What has to be found are the mistakes that people make with hops, terms, slots, bounds
and checksums.
"""
