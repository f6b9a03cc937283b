"""The Debian packages, in roots made by debootstrap: ``make test-deb``."""
