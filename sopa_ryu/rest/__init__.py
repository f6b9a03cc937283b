"""The REST interface (DESIGN, section 6): operations over the controller's state, and the WSGI application that offers them."""

from sopa_ryu.rest.application import RestApplication
from sopa_ryu.rest.resources import Services

__all__ = ["RestApplication", "Services"]
