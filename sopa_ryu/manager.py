"""The `ryu-manager` command: Ryu's own, adapted to current Python and eventlet; with os-ken, which has none, one in its place.

It accepts all of Ryu's options, and adds: the options of group `sopa`; a REST API that listens on loopback by default; messages
instead of tracebacks for a wrong option or a port in use; and a clean stop on Ctrl-C, SIGTERM and SIGHUP. SIGUSR1 has the fabric
file read anew. If more than names has changed, the program restarts in the same process. SIGHUP is also what a terminal sends when
it is closed.

The order of the steps matters. eventlet patches the standard library before Ryu is imported, so that no earlier lock remains
blocking; eventlet.wsgi gets the attribute that Ryu 4.34 expects before ryu.cmd.manager imports ryu.app.wsgi; and options are
registered before Ryu parses the command line.
"""

import contextlib
import errno
import gc
import logging
import os
import signal
import socket
import sys
import warnings
from collections.abc import Iterator
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import FrameType
from typing import Any, NoReturn

with warnings.catch_warnings():
    # "Eventlet is deprecated": Ryu requires it.
    warnings.simplefilter("ignore")
    os.environ.setdefault("EVENTLET_NO_GREENDNS", "yes")  # `green_names` instead
    unwanted = {"OpenSSL"} - sys.modules.keys()  # eventlet takes pyOpenSSL where it finds it, and nothing here uses it
    sys.modules.update(dict.fromkeys(unwanted))  # type: ignore[arg-type]  # None: it cannot be imported
    import eventlet
    import eventlet.hubs
    import eventlet.patcher
    import eventlet.wsgi

    for name in unwanted:
        del sys.modules[name]
import greenlet

from sopa_ryu.runtime import certificates, green_names, library, process
from sopa_ryu.runtime.certificates import CertificateError
from sopa_ryu.runtime.listeners import bound

WSAPI_HOST, WSAPI_PORT = "127.0.0.1", 8080
ECHO_SECONDS, UNREPLIED_ECHOES = 2.0, 3
STOP_SECONDS = 5
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PROGRAM = "ryu-manager"
_blocking_os = eventlet.patcher.original("os")  # for signal handlers, which must not switch green threads


class StartError(Exception):
    """The controller cannot start; the text is for the operator."""


def make_ryu_importable() -> None:
    """Add the attribute that ryu.app.wsgi expects of eventlet, and load Python's distutils; call it before Ryu is imported."""
    if library.name() == "ryu" and not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
        # Ryu 4.34 returns it from WebSocket handlers that have answered themselves. eventlet replaced it by a flag,
        # WSGI_LOCAL.already_handled, which its WebSocketWSGI sets, and ignores the handler's return value.
        eventlet.wsgi.ALREADY_HANDLED = b""
    # Of distutils, Ryu needs a class that compares versions. setuptools would load itself in its place, a tenth of the start.
    if "distutils" not in sys.modules and (spec := PathFinder.find_spec("distutils")) and spec.loader:
        sys.modules["distutils"] = module_from_spec(spec)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "distutils is deprecated"
            spec.loader.exec_module(sys.modules["distutils"])


def mend_openflow() -> None:
    """Replace Ryu's server for OpenFlow, which ends if an accept fails, and waits without limit for a client's handshakes.

    Besides, Ryu 4.34 removes the certificate from its settings at the first connection, so that the second switch has none, and
    logs a traceback for a failed handshake. A message whose parts have no length keeps its parsers in a loop. The process ends
    (`SystemExit`) if the library has not what is replaced: without these repairs one client can stop the controller.
    """
    from sopa_ryu import options
    from sopa_ryu.runtime.clients import Clients
    from sopa_ryu.runtime.library import controller
    from sopa_ryu.southbound import listener, parsing
    from sopa_ryu.southbound.datapath import Datapath

    try:
        parsing.bound()
        if not callable(getattr(controller, "StreamServer", None)):
            raise LookupError(f"{controller.__name__} has no StreamServer")
    except LookupError as error:
        raise SystemExit(
            f"{_PROGRAM}: {library.name()} is not a version that this controller can repair: {error.args[0]}"
        ) from None

    def serve(socket: Any, address: Any) -> None:
        with contextlib.closing(Datapath(socket, address)) as datapath, listener.watched(datapath):
            datapath.serve()

    def server(where: Any, _ryus: Any, certfile: str | None = None, keyfile: str | None = None,
               ca_certs: str | None = None, **_more: Any) -> Any:  # fmt: skip
        tls = None if certfile is None or keyfile is None else certificates.server(certfile, keyfile, ca_certs)
        switches = options.settings(controller.CONF).tree.switch_count
        return listener.SwitchServer(where, serve, tls, Clients(*listener.switch_share(switches)))

    controller.StreamServer = server


def register_options() -> None:
    """Register the options of group `sopa`, and set other defaults for Ryu's options."""
    from sopa_ryu import options
    from sopa_ryu.runtime.library import cfg, controller, ofproto_common  # noqa: F401  (controller registers options)

    options.register(cfg.CONF)
    if library.name() == "ryu":
        from sopa_ryu.runtime.library import ryu_command  # noqa: F401  (its imports register Ryu's options)
    else:
        cfg.CONF.register_cli_opts(
            [
                cfg.ListOpt("app-lists", default=[], help="application module name to run"),
                cfg.MultiStrOpt("app", positional=True, default=[], help="application module name to run"),
                cfg.StrOpt("pid-file", help="pid file name"),
                cfg.BoolOpt("enable-debugger", default=False, help="leave Python's threads as they are, for a debugger"),
                cfg.StrOpt("user-flags", help="Python file that registers options of applications"),
                cfg.StrOpt("wsapi-host"),
                cfg.IntOpt("wsapi-port", default=WSAPI_PORT, help=f"webapp listen port (default {WSAPI_PORT})"),
            ]
        )

    # Reading the REST API requires no token, so it listens on loopback by default. Registered again, because Ryu's help text
    # contains the default.
    host = cfg.StrOpt("wsapi-host", default=WSAPI_HOST, help=f"webapp listen host (default {WSAPI_HOST})")
    cfg.CONF.unregister_opt(host)
    cfg.CONF.register_cli_opt(host)

    # If they are set, Ryu listens on these only, and not on OpenFlow's port before 2013 too.
    cfg.CONF.set_default("ofp_tcp_listen_port", ofproto_common.OFP_TCP_PORT)
    cfg.CONF.set_default("ofp_ssl_listen_port", ofproto_common.OFP_SSL_PORT)

    # Ryu's defaults are a request every 15 s, and no limit of unanswered ones.
    cfg.CONF.set_default("echo_request_interval", ECHO_SECONDS)
    cfg.CONF.set_default("maximum_unreplied_echo_requests", UNREPLIED_ECHOES)


def check_port(host: str, port: int, option: str) -> None:
    """Raise `StartError` if no server can listen on an address: Ryu would log a traceback and continue without the server."""
    if os.path.isdir(os.path.dirname(host)):
        return  # the path of a Unix domain socket, which Ryu accepts too
    host_option = f"{option[: option.index('-')]}-{'listen-' if option.startswith('ofp') else ''}host"
    try:
        bound(host, port).close()
    except OverflowError:
        raise StartError(f"--{option} must be from 0 to 65535, not {port}") from None
    except socket.gaierror as error:
        raise StartError(f"--{host_option} {host}: {error.strerror}") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise StartError(
                f"port {port} on {host} is already in use (another controller?): stop it or choose another with --{option}"
            ) from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise StartError(f"{host} is not an address of this machine: see --{host_option}") from None
        raise StartError(f"cannot listen on port {port} of {host}: {error.strerror}: see --{option}") from None


def check_switch_tls(conf: Any) -> None:
    """Check the certificates of OpenFlow over TLS, and warn if any client is accepted as a switch.

    `StartError` if one of certificate and key is missing, with which Ryu would listen without TLS, or a file cannot be used.
    """
    from sopa_ryu.southbound import listener

    if (conf.ctl_privkey is None) != (conf.ctl_cert is None):
        raise StartError("--ctl-privkey and --ctl-cert belong together: give both for OpenFlow over TLS, or neither")
    if conf.ctl_privkey is None:
        return
    try:
        certificates.server(conf.ctl_cert, conf.ctl_privkey, conf.ca_certs)
    except CertificateError as error:
        raise StartError(f"OpenFlow over TLS: {error}") from None
    if conf.ca_certs is None:
        logging.getLogger("sopa").warning(listener.NO_AUTHORITY)


def say_what_is_open(conf: Any) -> None:
    """Log what the options leave open, a line each, unless the option ``insecure`` says that this is meant."""
    from sopa_ryu import options
    from sopa_ryu.exposure import Doors, exposures

    settings = options.settings(conf)
    doors = Doors(conf.ofp_listen_host, conf.wsapi_host, conf.ctl_privkey is not None, conf.ca_certs)
    for exposure in () if settings.insecure else exposures(settings, doors):
        logging.getLogger("sopa").warning(
            "open: %s. Set %s, or insecure in a lab (sopa doctor controller)", exposure.what, exposure.mend
        )


class _Stop:
    """Conversion of the first signal to a KeyboardInterrupt in Ryu's main(), which then closes the applications.

    A plain KeyboardInterrupt is raised in the green thread that happens to run, where Ryu logs and ignores it.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._main = greenlet.getcurrent()
        self._awake, self._wake = os.pipe()
        for end in (self._awake, self._wake):
            os.set_blocking(end, False)

    def install(self) -> None:
        for number in _SIGNALS:
            # Signals that the parent ignores stay ignored: nohup, or `command &` in a script.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until the application can read its fabric file anew
        # A signal does not interrupt the hub's epoll_wait, but a byte in the pipe does.
        signal.set_wakeup_fd(self._wake)
        eventlet.spawn_n(self._wait)

    def status(self) -> int:
        return 0 if self.signal in (None, signal.SIGINT) else 128 + int(self.signal or 0)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.signal is not None:
            os._exit(128 + number)  # the second signal ends the process immediately
        self.signal = number
        signal.signal(signal.SIGALRM, self._give_up)
        signal.alarm(STOP_SECONDS)

    def _give_up(self, _number: int, _frame: FrameType | None) -> None:
        _blocking_os.write(2, b"ryu-manager: an application did not stop in time; exiting without it\n")
        os._exit(self.status())

    def _wait(self) -> None:
        while self.signal is None:  # a signal that does not end the process has a byte, too
            eventlet.hubs.trampoline(self._awake, read=True)
            _blocking_os.read(self._awake, 1)
        eventlet.hubs.get_hub().schedule_call_global(0, self._main.throw, KeyboardInterrupt)


def _serve(apps: Any, args: list[str], prog: str) -> None:
    """Run applications until a KeyboardInterrupt, as `main` of Ryu's command does, with a library that has none."""
    from sopa_ryu.runtime.library import cfg, hub, log, ofp_handler, utils

    if "--user-flags" in args[:-1]:
        utils._import_module_file(args[args.index("--user-flags") + 1])
    log.early_init_log(logging.DEBUG)
    files = [file for file in ("/usr/local/etc/ryu/ryu.conf",) if os.path.exists(file)]
    cfg.CONF(args, project="ryu", prog=prog, version=f"{prog} os-ken {library.version()}", default_config_files=files)
    log.init_log()
    if cfg.CONF.pid_file:
        with open(cfg.CONF.pid_file, "w") as file:
            file.write(str(os.getpid()))
    try:
        apps.load_apps(cfg.CONF.app_lists + cfg.CONF.app or [ofp_handler.__name__])
        hub.joinall(apps.instantiate_apps(**apps.create_contexts()))
    except KeyboardInterrupt:
        logging.getLogger("sopa").debug("interrupted: the applications are closed")
    finally:
        apps.close()


def main(args: list[str] | None = None, prog: str | None = None) -> int:
    """Run the controller until a signal stops it; return the exit status."""
    gc.disable()  # what is loaded until `load_apps` stays
    green_names.install()
    if "--enable-debugger" not in (sys.argv[1:] if args is None else args):
        eventlet.monkey_patch()
    process.allow_files()
    make_ryu_importable()
    register_options()
    mend_openflow()
    from oslo_config import cfg

    from sopa_ryu import options
    from sopa_ryu.fabric.state_directory import StateError
    from sopa_ryu.front.start import prepare
    from sopa_ryu.rest.access import TokenError
    from sopa_ryu.runtime.library import app_manager
    from sopa_ryu.runtime.library import cfg as library_cfg
    from sopa_ryu.runtime.log_pace import LogPace

    CONF = library_cfg.CONF

    class Manager(app_manager.AppManager):  # type: ignore[misc, unused-ignore]
        """Ryu's manager with checks that need the parsed options and the loaded applications, before any of them runs."""

        def load_apps(self, app_lists: list[str]) -> None:
            options.settings(CONF)
            for handler in logging.getLogger().handlers:
                handler.addFilter(LogPace())
                if handler.formatter is None:  # those of a --log-config-file have one
                    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
            options.warn_of_unknown(CONF)
            names = [name for part in app_lists for name in part.split(",")]
            if "sopa_ryu.app" in names:
                prepare()
            try:
                super().load_apps(app_lists)
            except ModuleNotFoundError as error:
                for name in names:
                    if f"{name}.".startswith(f"{error.name}."):
                        raise StartError(f"cannot find application {name}: {error}") from None
                raise
            finally:
                gc.enable()
            check_switch_tls(CONF)
            if "sopa_ryu.app" in names:
                say_what_is_open(CONF)
            for host, port, option in self.servers():
                check_port(host, port, option)

        def servers(self) -> Iterator[tuple[str, int, str]]:
            if library.ofp_handler.__name__ in self.applications_cls:
                kind = "tcp" if CONF.ctl_privkey is None or CONF.ctl_cert is None else "ssl"
                option = f"ofp-{kind}-listen-port"
                yield CONF.ofp_listen_host, CONF[option.replace("-", "_")], option
            has_wsgi = library.name() == "ryu" and library.wsgi.WSGIApplication in self.contexts_cls.values()
            if has_wsgi or "sopa_ryu.app" in self.applications_cls:
                yield CONF.wsapi_host, CONF.wsapi_port, "wsapi-port"

    apps = app_manager.AppManager._instance = Manager()
    stop = _Stop()
    stop.install()
    try:
        if library.name() == "ryu":
            library.ryu_command.main(args, prog or _PROGRAM)
        else:
            _serve(apps, sys.argv[1:] if args is None else args, prog or _PROGRAM)
    except (StartError, StateError, TokenError, CertificateError, options.OptionError, cfg.Error) as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass  # a signal before Ryu was ready for it
    finally:
        signal.alarm(0)  # the interpreter's own end takes the handler away: the alarm would be the exit status
    process.restart_if_asked()
    if stop.signal is None and any(apps.servers()):
        print(f"{_PROGRAM}: a server ended that nobody stopped: see the log for the error", file=sys.stderr)
        return 1
    return stop.status()


def _run() -> NoReturn:
    sys.exit(main())


if __name__ == "__main__":
    _run()
