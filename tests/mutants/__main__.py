"""The command ``python -m tests.mutants``."""

from tests.mutants.runner import main

raise SystemExit(main())
