"""The commands of ``tpuconvert``: one module each, with a click command named ``command``."""
