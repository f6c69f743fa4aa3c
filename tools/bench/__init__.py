"""The benchmark: our engine against the CPU engines that people use, interleaved on one machine. See README.md."""
