"""An example agent: answers the same questions again and again, and records each turn.

EVALTAP_LOG says where to; TURNS how many (default: until it is stopped), PAUSE_SECONDS how fast.
"""

import itertools
import os
import random
import signal
import threading

from evaltap.recorder import Recorder

ORDERS = {"A-100": "shipped", "A-101": "being packed", "A-102": "delivered"}


def main() -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    turns = int(os.environ.get("TURNS", "0"))
    pause = float(os.environ.get("PAUSE_SECONDS", "1"))
    recorder = Recorder(app_name="order-desk")
    for number in itertools.count(1):
        answer_one(recorder, f"session-{os.getpid()}-{number}", random.choice(list(ORDERS)))
        if number == turns or stopped.wait(pause):
            break
    recorder.close(10)
    print(recorder.counters())


def answer_one(recorder: Recorder, session: str, order: str) -> None:
    """Look an order up, answer, and now and then forget to look."""
    with recorder.turn(session_id=session, user=f"Where is order {order}?") as turn:
        status = "on its way"
        if random.random() < 0.9:
            status = ORDERS[order]
            turn.tool("get_order", {"order_id": order}, result={"status": status})
        turn.respond(f"Order {order} is {status}.")


if __name__ == "__main__":
    main()
