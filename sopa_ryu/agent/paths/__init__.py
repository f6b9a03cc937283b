"""Path sets and path tables of one host, pure: which candidate paths packets take, and in which order."""
