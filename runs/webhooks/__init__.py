"""Telling others that runs have ended: signed POSTs to the addresses of runs and flows.

``making`` stores what is to be delivered, in the transaction that counts the run; ``messages`` wakes a sender.
``sending`` takes what is due, sends it and stores what came of it; ``posting`` is one POST, ``targets`` says where it
may go, ``signing`` by which headers receivers know it, ``retries`` what follows from an answer, ``payload`` what is
told. ``secrets`` gives somebody another secret. ``tasks`` is what queue messages name; ``sender_lock`` keeps it to one
sender on a host.
"""
