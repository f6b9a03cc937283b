"""The engine's address as operators write it."""

from pathlib import Path

import pytest

from sopa_ryu.cluster.address import Access, AddressError, check_access


def test_what_belongs_together_is_given_together() -> None:
    file = Path("x.pem")
    for wrong in (Access(cert=file), Access(key=file), Access(user="sopa"), Access(password_file=file)):
        with pytest.raises(AddressError, match="belong together"):
            check_access(wrong)
    check_access(Access(file, file, file, "sopa", file))
    assert Access(ca=file).tls
    assert Access(cert=file, key=file).tls
    assert not Access(user="sopa", password_file=file).tls
