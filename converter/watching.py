"""Former name of ``tpuconvert.pass_instrumentation``, kept for scripts that import ``Watch`` from here."""

from tpuconvert.pass_instrumentation import Watch as Watch
