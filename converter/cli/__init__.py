"""The command line: ``commands`` has one module per command, and the other modules are what they share."""
