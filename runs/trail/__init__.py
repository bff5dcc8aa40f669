"""The trail of who did what: what is told, and how it is written.

``actions`` says what there is to tell; ``entries`` writes an entry, in the transaction of what it tells, and knows from
``asking`` who asks; ``row_changes`` tells of rows that whoever saves them tells nothing of, ``sign_ins`` of people who
come and go.
"""
