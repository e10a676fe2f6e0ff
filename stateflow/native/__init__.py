"""The native core: the hot loops in C, each with a twin in Python that gives the same results (decision 0026)."""
