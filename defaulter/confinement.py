"""Confines a worker process with the means of the kernel, before it reads a document.

- no-new-privileges: no program that the worker starts gets more rights.
- A mount namespace, if the service runs as root: it hides `/dev/kvm`, which a worker does not need.
- Landlock: the worker opens only files of the system's libraries, writes only below its root directory, executes only
  QEMU, and reaches no process outside.
- seccomp: the kernel refuses networks, mounts, namespaces, debugging and modules.
- no programs: the worker executes nothing at all, once libvirt has probed QEMU. No document is read before.
- no /proc: the worker reads nothing about processes and the machine from then on. This also saves processor time.

A kernel may have no Landlock, and a container runtime may refuse these system calls. Each function therefore says what
is missing instead of failing, and the service reports it in its log and at `/readyz`.

There is no maintained Python library for Landlock. For seccomp, `pyseccomp` wraps the same five functions of libseccomp
that this module calls, and was last released in 2021. libseccomp is a dependency of QEMU.
"""

import ctypes
import errno
import os
import struct
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from glob import glob
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_KVM = Path("/dev/kvm")
_PROC = Path("/proc")


class Missing(Exception):
    """The kernel, the container runtime or a library does not offer a means of confinement."""


def no_new_privileges() -> None:
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise Missing(_error())


def hide_kvm(empty: Path) -> None:
    """Mounts an inaccessible file over `/dev/kvm`, in a mount namespace of this process. Needs root.

    libvirt tests only the permissions of `/dev/kvm`. If these allow access and an open fails, it probes QEMU again for
    each domain, which takes up to 48 s."""
    if not _KVM.exists():
        return
    empty.touch(mode=0)
    if _libc.unshare(_CLONE_NEWNS) or _libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None):
        raise Missing(_error())
    if _libc.mount(os.fsencode(empty), os.fsencode(_KVM), None, _MS_BIND, None):
        raise Missing(_error())


# Landlock (linux/landlock.h)

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_VERSION = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_READ = _READ_FILE | _READ_DIR
_FILE_RIGHTS_BY_VERSION = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_TCP_SINCE, _TCP = 4, 0b11
_SCOPE_SINCE, _SCOPES = 6, 0b11  # abstract sockets and signals

_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/proc", "/sys")
_SETTINGS = ("ld.so.cache", "localtime", "passwd", "group", "nsswitch.conf", "machine-id", "os-release", "host.conf")
_PACKAGES = ("defaulter", "poolhouse")


_EMULATORS = ("qemu-kvm", "qemu-system-*")
_EMULATOR_OF_RHEL = "/usr/libexec/qemu-kvm"


@dataclass(frozen=True)
class FileView:
    """The files that a process may use. All other files are invisible to `open` and `exec`."""

    readable: tuple[Path, ...] = ()
    executable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    devices: tuple[Path, ...] = ()

    def rights(self) -> Iterator[tuple[Path, int]]:
        for path in self.readable:
            yield path, _READ
        for path in self.executable:
            yield path, _READ_FILE | _EXECUTE
        for path in self.writable:
            yield path, ~_EXECUTE
        for path in self.devices:
            yield path, _READ_FILE | _WRITE_FILE | _IOCTL_DEVICE


def worker_files(root: Path, emulators: Iterable[Path]) -> FileView:
    """The files of a worker with this root directory."""
    programs = tuple(emulators)
    code = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    packages = Path(__file__).resolve().parents[1]
    return FileView(
        readable=(
            *map(Path, (*_SYSTEM, *sorted(code))),
            *(Path("/etc") / name for name in _SETTINGS),
            *(packages / name for name in _PACKAGES),
        ),
        executable=(*programs, *sorted({path for each in programs for path in interpreters(each)})),
        writable=(root,),
        # As root, hide_kvm has made it inaccessible; else libvirt would probe it again and again.
        devices=(Path("/dev/null"), Path("/dev/urandom"), *([_KVM] if os.access(_KVM, os.R_OK | os.W_OK) else [])),
    )


def emulators(search_path: str) -> Iterator[Path]:
    """The QEMU programs that libvirt may find. A script is none: it would need a shell."""
    patterns = [os.path.join(where, name) for where in search_path.split(os.pathsep) for name in _EMULATORS if where]
    for path in (_EMULATOR_OF_RHEL, *(name for pattern in patterns for name in glob(pattern))):
        if os.access(path, os.X_OK) and _is_elf(Path(path)):
            yield Path(path).resolve()


def _is_elf(path: Path) -> bool:
    with suppress(OSError):
        return path.open("rb").read(4) == b"\x7fELF"
    return False


_PT_INTERP = 3


def interpreters(program: Path) -> Iterator[Path]:
    """The dynamic loader of a program, which the kernel executes too."""
    with program.open("rb") as file:
        header = file.read(64)
        if len(header) < 64 or header[4] != 2:  # only 64-bit hosts run VMs
            return
        order = "<" if header[5] == 1 else ">"
        offset, size, count = (
            *struct.unpack_from(f"{order}Q", header, 0x20),
            *struct.unpack_from(f"{order}HH", header, 0x36),
        )
        for index in range(count):
            file.seek(offset + index * size)
            entry = file.read(size)
            if struct.unpack_from(f"{order}I", entry)[0] == _PT_INTERP:
                where, length = (struct.unpack_from(f"{order}Q", entry, at)[0] for at in (8, 32))
                file.seek(where)
                yield Path(os.fsdecode(file.read(length).rstrip(b"\0"))).resolve()


class Landlock:
    """Open rules for a file view. Create it while the files can be opened; `enforce` may come after a change of the
    user."""

    def __init__(self, view: FileView) -> None:
        version = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
        if version < 1:
            raise Missing(_error())
        rights = max((since, rights) for since, rights in _FILE_RIGHTS_BY_VERSION.items() if since <= version)[1]
        network = _TCP if version >= _TCP_SINCE else 0
        scopes = _SCOPES if version >= _SCOPE_SINCE else 0
        attributes = struct.pack("=QQQ", rights, network, scopes)
        sizes = {1: 8, 4: 16, 6: 24}
        size = sizes[max(since for since in sizes if since <= version)]
        self.version = int(version)
        self._ruleset = int(_libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0))
        if self._ruleset < 0:
            raise Missing(_error())
        for path, wanted in view.rights():
            self._allow(path, wanted & rights)

    def _allow(self, path: Path, rights: int) -> None:
        try:
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            return  # a file that does not exist needs no rule
        try:
            rights &= -1 if os.path.isdir(path) else _OF_FILES
            rule = struct.pack("=Qi", rights, opened)
            if _libc.syscall(_ADD_RULE, self._ruleset, _RULE_PATH_BENEATH, rule, 0):
                raise Missing(f"{path}: {_error()}")
        finally:
            os.close(opened)

    def enforce(self) -> None:
        failed = _libc.syscall(_RESTRICT_SELF, self._ruleset, 0)
        message = _error()
        os.close(self._ruleset)
        if failed:
            raise Missing(message)


# seccomp

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NOT_EQUAL = 1
_AF_UNIX = 1
_UNKNOWN_CALL = -1

REFUSED_CALLS = """
    acct add_key bpf chroot clock_adjtime clock_settime delete_module fanotify_init finit_module fsconfig fsmount
    fsopen fspick init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load
    kexec_load keyctl lookup_dcookie mknod mknodat mount mount_setattr move_mount move_pages name_to_handle_at
    nfsservctl open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root process_madvise process_vm_readv
    process_vm_writev ptrace quotactl quotactl_fd reboot request_key setdomainname sethostname setns settimeofday
    stime swapoff swapon syslog umount umount2 unshare uselib userfaultfd vhangup vmsplice
"""
"""system calls that neither libvirt nor QEMU need to describe a domain, and with which kernels have been attacked"""
PROGRAM_CALLS = ("execve", "execveat")


@dataclass(frozen=True)
class _Comparison:
    argument: int
    operator: int
    value: int

    def packed(self) -> bytes:
        return struct.pack("=IIQQ", self.argument, self.operator, self.value, 0)


_NO_NETWORK = {"socket": _Comparison(0, _NOT_EQUAL, _AF_UNIX), "socketpair": _Comparison(0, _NOT_EQUAL, _AF_UNIX)}


def refuse_calls(
    names: Iterable[str], conditional: Mapping[str, _Comparison] | None = None, code: int = errno.EPERM
) -> None:
    """Makes the kernel refuse system calls of this process, of all its threads and of the programs that it starts."""
    try:
        library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    except OSError as error:
        raise Missing(str(error)) from None
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_ALLOW)))
    if not context:
        raise Missing("libseccomp gives no filter")
    try:
        rules = [*((name, None) for name in names), *(conditional or {}).items()]
        for name, comparison in rules:
            call = library.seccomp_syscall_resolve_name(name.encode())
            if call == _UNKNOWN_CALL:
                continue  # newer than this libseccomp, or of another architecture
            compared = comparison.packed() if comparison is not None else None
            action = ctypes.c_uint32(_ERRNO | code)
            failed = library.seccomp_rule_add_array(context, action, call, int(comparison is not None), compared)
            if failed and -failed != errno.EDOM:
                raise Missing(f"{name}: {os.strerror(-failed)}")
        _set_thread_sync(library, context)
        if failed := library.seccomp_load(context):
            raise Missing(os.strerror(-failed))
    finally:
        library.seccomp_release(context)


_THREAD_SYNC = 4


def _set_thread_sync(library: ctypes.CDLL, context: ctypes.c_void_p) -> None:
    """Applies the filter to the threads of libvirt too."""
    if library.seccomp_attr_set(context, _THREAD_SYNC, ctypes.c_uint32(1)):
        raise Missing("the kernel cannot filter the system calls of all threads")


def _error() -> str:
    return os.strerror(ctypes.get_errno())


@dataclass
class Confinement:
    """What confines a worker, and what does not and why."""

    enforced: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def apply(self, name: str, enforce: Callable[[], None]) -> None:
        try:
            enforce()
        except (Missing, OSError) as error:
            self.missing[name] = str(error)
        else:
            self.enforced.append(name)


def confine(root: Path, drop_privileges: Callable[[], None]) -> Confinement:
    """Confines this process and all that it starts. Rules are made before the change of the user, because the new user
    may not be able to open the files. Import all modules before."""
    confinement = Confinement()
    if os.geteuid() == 0 and _KVM.exists():
        confinement.apply("mount namespace", lambda: hide_kvm(root / "kvm"))
    rules: list[Landlock] = []
    files = worker_files(root, emulators(os.environ.get("PATH", os.defpath)))
    confinement.apply("Landlock", lambda: rules.append(Landlock(files)))
    drop_privileges()
    confinement.apply("no-new-privileges", no_new_privileges)
    for landlock in rules:
        confinement.enforced.remove("Landlock")
        confinement.apply("Landlock", landlock.enforce)
    confinement.apply("seccomp", lambda: refuse_calls(REFUSED_CALLS.split(), _NO_NETWORK))
    return confinement


def forbid_programs() -> None:
    """Refuses every `exec` from now on, even of a file in memory, which Landlock does not control."""
    refuse_calls(PROGRAM_CALLS)


def kvm_is_usable() -> bool:
    return os.access(_KVM, os.R_OK | os.W_OK)


def forbid_proc(root: Path) -> None:
    """Refuses every file of /proc from now on. Call it only without a usable KVM.

    libvirt 9.0 reads the version of the processor's microcode from /proc/cpuinfo before it checks a device, to see
    whether its probe of KVM is out of date: 31 times in a define of a VM with two disks, a third of the define's
    processor time. Without KVM it does not use the version.
    """
    files = worker_files(root, ())
    Landlock(replace(files, readable=tuple(each for each in files.readable if each != _PROC))).enforce()
