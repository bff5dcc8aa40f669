"""The audit log: who did what.

``events`` lists the actions and writes an entry, in the transaction of what it is about; ``actor`` says who acts;
``signals`` writes entries of rows that are changed anywhere, ``sign_ins`` those of sign-ins and ended sessions;
``entries`` reads them.
"""
