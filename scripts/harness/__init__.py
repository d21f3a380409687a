"""What the suites of real processes share.

    process   child processes, free ports, waiting
    suite     the processes, files and checks of one suite
    sidecar   a sidecar's configuration and admin API
    load      load generators
    spaces    network namespaces

The shell scripts set DIR, a directory for files and logs, and BIN, the directory of
the programs; see lib.sh.
"""
