"""What tests could leave on a machine: network settings, namespaces, links, tables, mounts, files of the Linux cloud.

`state()` reads it, `difference()` says in words what is new or has changed. What is gone was somebody else's to take away.
"""
import os
import pathlib
import subprocess

SETTINGS = pathlib.Path("/proc/sys/net")
# Counters, not settings.
COUNTERS = {"nf_conntrack_count"}


def state():
    return {
        "setting": settings(),
        "network namespace": names("/run/netns"),
        "link": names("/sys/class/net"),
        "nftables table": lines(["nft", "list", "tables"]),
        "file of the Linux cloud in /run/trestle:": names("/run/trestle"),
        "mount": mounts(),
    }


def difference(before, after):
    found = []
    for kind, now in after.items():
        was = before[kind]
        # A module that is loaded meanwhile brings its settings along.
        if kind != "setting":
            found += [f"{kind} {name} is left" for name in sorted(now.keys() - was.keys())]
        changed = (name for name in sorted(now.keys() & was.keys()) if now[name] != was[name])
        found += [f"{kind} {name} was {was[name]}, is {now[name]}" for name in changed]
    return found


def settings():
    """Of all interfaces together; those of one come and go with it."""
    found = {}
    for directory, _, files in os.walk(SETTINGS):
        parts = pathlib.Path(directory).relative_to(SETTINGS).parts
        if len(parts) == 3 and parts[1] in ("conf", "neigh") and parts[2] not in ("all", "default"):
            continue
        for file in files:
            path = pathlib.Path(directory, file)
            try:
                if file not in COUNTERS:
                    found[str(path.relative_to("/proc/sys")).replace("/", ".")] = path.read_text().strip()
            except OSError:
                pass  # some are for writing only
    return found


def names(directory):
    try:
        return {name: None for name in os.listdir(directory)}
    except FileNotFoundError:
        return {}


def lines(command):
    try:
        output = subprocess.run(command, capture_output=True, text=True).stdout
    except FileNotFoundError:
        return {}
    return {line: None for line in output.splitlines()}


def mounts():
    """But those that `ip netns` keeps namespaces by, and their directory, which it makes once."""
    lines = pathlib.Path("/proc/self/mounts").read_text().splitlines()
    return {path: None for path in (line.split()[1] for line in lines) if not path.startswith("/run/netns")}
