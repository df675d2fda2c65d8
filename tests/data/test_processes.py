"""Ctrl-C in a terminal reaches every process: all end at once, none complains."""

import os
import signal
import subprocess
import sys
import time

PARENT = """
import signal, sys, time
from hostbot.data.processes import Pool

if __name__ == "__main__":
    try:
        with Pool(2, print) as pool:
            waiting = list(pool.map(time.sleep, [0, 0]))
            if sys.argv[2] == "deaf":
                list(pool.map(signal.pthread_sigmask, [signal.SIG_BLOCK] * 9, [{signal.SIGINT}] * 9))
            print("ready", flush=True)
            list(pool.map(time.sleep, [int(sys.argv[1])] * 9))
            time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted")
"""


def interrupted(script, seconds, how="hearing"):
    process = subprocess.Popen(
        [sys.executable, str(script), str(seconds), how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    )
    while process.stdout.readline() != "ready\n":
        assert process.poll() is None
    time.sleep(0.3)
    begin = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=30)
    return out.split(), error, time.monotonic() - begin


def test_all_end_at_once_without_a_word_busy_or_idle(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    for seconds in (60, 0):
        out, error, took = interrupted(script, seconds)
        assert out == ["interrupted"]
        assert error == ""
        assert took < 20


def test_a_process_that_does_not_hear_is_ended(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    out, error, took = interrupted(script, 60, "deaf")
    assert out == ["interrupted"]
    assert error == ""
    assert took < 20
