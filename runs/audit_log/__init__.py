"""The audit log: each action with its actor, time and address.

``events`` lists the actions and writes an entry, in the transaction of what it is about; ``actor`` says who acts;
``signals`` writes entries of rows that are changed anywhere, ``sign_ins`` those of sign-ins and ended sessions;
``entries`` reads them.
"""
