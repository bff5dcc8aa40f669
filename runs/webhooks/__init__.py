"""Notifying others that runs have ended: signed POSTs to webhook endpoints and to the addresses of runs.

``deliveries`` stores what is to be sent, in the transaction that counts a run. ``sending`` claims what is due, sends it
and stores the answers; ``posting`` is one POST, ``addresses`` says where it may go, ``messages`` what is sent and how
it is signed. ``tasks`` is what the queue calls.
"""
