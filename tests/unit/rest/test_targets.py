"""A request is routed by its path and sent on by the same: no second reading of the target finds another."""

import random
from urllib.parse import unquote, urlsplit

from sopa_ryu.rest.answers import TARGET, request_of

PIECES = ("/", "//", "%2F", "%2f", "@", "%40", "..", "%2e%2e", "sopa", "v1", ":80", "%3F", "%23", "#", "%5c", "%00", "\xe9", "%e9")


def test_what_is_sent_on_is_a_path_of_the_server_that_it_is_sent_to_and_leads_where_the_request_was_routed() -> None:
    draw = random.Random("targets")
    for _ in range(2000):
        target = "/" + "".join(draw.choices(PIECES, k=draw.randrange(6))) + draw.choice(("", "?a=b", "?@c/d"))
        environ = request_of("GET", target, (), b"", "192.0.2.9", "http", "HTTP/1.1").environ
        sent_on = urlsplit("http://192.0.2.1:8080" + environ[TARGET])
        assert (sent_on.hostname, sent_on.port, sent_on.username, sent_on.fragment) == ("192.0.2.1", 8080, None, "")
        assert unquote(sent_on.path, "latin-1") == environ["PATH_INFO"]
        assert sent_on.query == environ["QUERY_STRING"]
