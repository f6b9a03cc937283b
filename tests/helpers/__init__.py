"""Helpers that tests of several folders share; nothing is imported from a conftest or another test."""
