"""What the others see when a rank fails, and how programs end."""

import os
import subprocess
import sys

import pytest

HEAD = """
import os, sys, torch, torch.distributed as dist
import hcom_torch as hcom
rank = int(sys.argv[1])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
hcom.patch_for_hcom()
def model(x):
    dist.all_reduce(x)
    return x + 1
model = torch.compile(model, backend=hcom.get_npu_backend(), fullgraph=True)
model(torch.ones(4))
print("ready", flush=True)
"""


def start(tmp_path, body, **environment):
    """Two ranks that run ``HEAD`` and then ``body``."""
    program = tmp_path / "program.py"
    program.write_text(HEAD + body)
    return [
        subprocess.Popen(
            [sys.executable, str(program), str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HCOM_TIMEOUT": "20", **environment},
        )
        for rank in range(2)
    ]


def finish(processes, timeout=120):
    """(exit code, output, error output) of each; kills those that hang."""
    answers = []
    for process in processes:
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            errors += "\nhung"
        answers.append((process.returncode, output, errors))
    return answers


def test_a_rank_that_dies_ends_the_other(tmp_path):
    body = """
if rank == 1:
    os._exit(7)
try:
    model(torch.ones(4))
except hcom.CollectiveError as error:
    print(error)
"""
    first, second = finish(start(tmp_path, body))
    assert second[0] == 7
    assert first[0] == 0, first[2]
    assert "all_reduce" in first[1] and "rank 1" in first[1] and "program.py:9" in first[1]


def test_a_rank_that_stays_away_ends_the_other_within_the_timeout(tmp_path):
    body = """
import time
begin = time.monotonic()
if rank == 0:
    try:
        model(torch.ones(4))
    except hcom.CollectiveError as error:
        print(error)
    print("waited", time.monotonic() - begin)
else:
    time.sleep(8)
"""
    first, second = finish(start(tmp_path, body, HCOM_TIMEOUT="2"))
    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    assert "timed out waiting for rank 1" in first[1]
    assert float(first[1].split("waited ")[1]) < 8


def test_an_interrupt_ends_a_wait(tmp_path):
    body = """
import signal, threading, time
if rank == 0:
    threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        model(torch.ones(4))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    os._exit(0)
else:
    time.sleep(5)
"""
    first, _ = finish(start(tmp_path, body))
    assert first[0] == 0 and "interrupted" in first[1], first


@pytest.mark.parametrize("destroy", [True, False], ids=["destroyed", "not-destroyed"])
def test_a_program_ends_cleanly(tmp_path, destroy):
    for code, output, errors in finish(start(tmp_path, "dist.destroy_process_group()\n" if destroy else "")):
        assert (code, output) == (0, "ready\n"), errors
