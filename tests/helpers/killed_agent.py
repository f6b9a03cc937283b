"""What an agent that was killed leaves on its host."""

from sopa_ryu.agent.host_settings import HostSettings


def leave_behind(settings: HostSettings) -> None:
    """What SIGKILL leaves: the changes and the state file, and a lock that nobody holds."""
    settings.apply()
    abandon(settings)


def abandon(settings: HostSettings) -> None:
    """Release the lock of applied settings, as the kernel does at a process' end."""
    assert settings._saved is not None
    settings._saved.release()
