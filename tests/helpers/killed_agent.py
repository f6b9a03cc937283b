"""The remains of a killed agent on its host."""

from sopa_ryu.agent.host_settings import HostSettings


def leave_behind(settings: HostSettings) -> None:
    """Leave what SIGKILL leaves: the changes and the state file, and a lock without an owner."""
    settings.apply()
    abandon(settings)


def abandon(settings: HostSettings) -> None:
    """Release the lock of applied settings, as the kernel does at a process' end."""
    assert settings._saved is not None
    settings._saved.release()
