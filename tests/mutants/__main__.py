"""Tries defects of the product and says which of them no test finds: ``python -m tests.mutants``."""

from tests.mutants.runner import main

raise SystemExit(main())
