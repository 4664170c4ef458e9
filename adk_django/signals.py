"""What was committed, told to whoever listens. Signals report; they drive nothing, and a receiver's error stops no
run.

Each is sent with ``tenant`` and ``run_id``. ``save_failed`` adds ``boundary`` and ``error`` (text).
``evidence_contradicts`` adds ``call``. ``run_stopped`` adds ``status`` and ``reason``.
"""

from django.dispatch import Signal

save_failed = Signal()
evidence_contradicts = Signal()
run_stopped = Signal()
