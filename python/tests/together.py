# SPDX-License-Identifier: MIT
"""Runs a function in several threads at once."""
import threading


def together(work, n=4):
    """work(0) to work(n - 1), each in a thread of its own. Raises the first exception of a thread."""
    failures = []

    def run(i):
        try:
            work(i)
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)
    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    if failures:
        raise failures[0]
