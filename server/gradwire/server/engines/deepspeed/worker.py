"""A worker process: one rank of a training job behind a gRPC server on a Unix socket.

    python -m gradwire.server.engines.deepspeed.worker --socket PATH --rank R --world N --parent PID

The main thread runs the operations one after the other (CUDA and DeepSpeed want one thread); gRPC's threads
hand them over and wait. An operation that has begun runs to its end, whatever becomes of its caller.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import signal
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from gradwire.server.engines.deepspeed.lifeline import tie_to_parent
from gradwire.server.engines.deepspeed.main_thread import MainThread
from gradwire.server.engines.deepspeed.messages import MESSAGE_LIMIT
from gradwire.server.engines.deepspeed.servicer import WorkerServicer
from gradwire.worker.v1 import worker_pb2_grpc as rpc


def main() -> None:
    """Serve until Shutdown, or until the front process is gone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--socket", type=Path, required=True, help="path of the Unix socket to listen on")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True, help="process id of the front")
    arguments = parser.parse_args()
    tie_to_parent(arguments.parent)
    # A Ctrl-C or a service manager's SIGTERM reaches the whole process group, but ending is the front's to order.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    faulthandler.enable()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch")  # deepspeed's calls, not ours

    queue_of_main = MainThread()
    options = [
        ("grpc.max_receive_message_length", MESSAGE_LIMIT),
        ("grpc.max_send_message_length", MESSAGE_LIMIT),
    ]
    server = grpc.server(ThreadPoolExecutor(8, thread_name_prefix="rpc"), options=options)
    rpc.add_WorkerServiceServicer_to_server(
        WorkerServicer(queue_of_main, rank=arguments.rank, world=arguments.world), server
    )
    server.add_insecure_port(f"unix:{arguments.socket}")
    server.start()
    queue_of_main.run()
    server.stop(grace=1).wait()
    # DeepSpeed's and torch's own ends may wait for peers that are gone; everything of worth is on disk.
    logging.shutdown()
    os._exit(0)


if __name__ == "__main__":
    main()
