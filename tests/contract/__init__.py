"""Recorded answers that outside users rely on, compared with the answers of this version."""
