"""The REST interface (DESIGN, section 6): operations over the controller's state, and the WSGI application that offers them."""
