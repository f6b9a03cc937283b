"""The front: serves agents, readers and pages over HTTP and WebSockets, for a controller (its child) or as ``sopa relay``."""
