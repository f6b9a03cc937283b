"""The commands `sopa demo`, `sopa lab` and `sopa experiment`."""
