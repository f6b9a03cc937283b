"""The REST interface: operations over the controller's state, and their WSGI application (docs/architecture.md, section 7)."""
