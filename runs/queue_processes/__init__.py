"""The queue's processes on this host, so arranged that any of them may be killed at any moment.

``manage.py run_worker`` is the main process. It forks the supervisor, the supervisor forks the workers and the
dispatcher, which brings messages from the broker to the workers. django-q2 gives the brokers, the schedules and what a
worker does with a task; docs/decisions/0007 says why the processes around them are ours.

Nothing is shared that a killed process could leave locked or half-written, and all die with their parent. A stop is
asked for by flags in shared memory, which every process checks by itself.
"""
